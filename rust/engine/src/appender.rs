//! Appends batches of this node's coordinators, on a separate thread.
//!
//! A file write is sometimes blocked on the disk while the file system commits other writes. A coordinator must not
//! be blocked with it. Batches are appended in the order in which they are passed in.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use klamm_base::panics::contained;
use klamm_base::{ErrorCode, Uuid};
use klamm_log::Origin;
use klamm_net::Server;
use klamm_replica::{EndedSeries, Partition, Replicas, Series};
use parking_lot::Mutex;

/// A batch of a coordinator on this node.
pub struct OwnBatch {
    /// The partition to append to.
    pub topic: Uuid,
    pub index: i32,
    /// Or why there is none: it ends its series as any refusal does.
    pub batch: Result<Vec<u8>, ErrorCode>,
    pub origin: Origin,
    /// Whether it is refused below `min.insync.replicas`.
    pub needs_min_isr: bool,
    /// That of a shard; a marker may belong to none.
    pub series: Option<Series>,
    /// Identifies the batch in its acknowledgement.
    pub token: u64,
}

enum Order {
    Append(Vec<OwnBatch>),
    /// Send a message when all earlier orders are done.
    Notify(Sender<()>),
}

/// The thread, which is started by the first append; it ends with `end`, or when this is dropped.
pub struct Appender {
    place: Arc<Place>,
    running: Mutex<Running>,
}

enum Running {
    NotYet,
    Yes(Sender<Order>, JoinHandle<()>),
    Ended,
}

/// The target of appends and acknowledgements.
struct Place {
    replicas: Arc<Replicas>,
    server: Arc<Server>,
    ended: Mutex<EndedSeries>,
}

impl Appender {
    pub fn new(replicas: Arc<Replicas>, server: Arc<Server>) -> Self {
        Self {
            place: Arc::new(Place { replicas, server, ended: Mutex::default() }),
            running: Mutex::new(Running::NotYet),
        }
    }

    /// Queues each batch for its partition. Each token is returned in an event when its batch is
    /// committed, was rejected, or can no longer be committed.
    pub fn append(&self, batches: Vec<OwnBatch>) -> std::io::Result<()> {
        let mut running = self.running.lock();
        if let Running::NotYet = &*running {
            let (orders, taken) = channel();
            let place = self.place.clone();
            let thread =
                std::thread::Builder::new().name("klamm-append".to_owned()).spawn(move || place.work(&taken))?;
            *running = Running::Yes(orders, thread);
        }
        match &*running {
            Running::Yes(orders, _) => orders.send(Order::Append(batches)).expect("it ends only on request"),
            _ => batches.iter().for_each(|it| self.place.acknowledge(it.token, ErrorCode::NOT_LEADER_OR_FOLLOWER)),
        }
        Ok(())
    }

    /// Returns when everything queued before is appended.
    pub fn settle(&self) {
        let (sender, done) = channel();
        if let Running::Yes(orders, _) = &*self.running.lock() {
            orders.send(Order::Notify(sender)).expect("it ends only on request");
        } else {
            return;
        }
        // An error means that it has ended meanwhile, after everything that was queued.
        let _ = done.recv();
    }

    /// Appends what is queued, and ends the thread.
    pub fn end(&self) {
        let running = std::mem::replace(&mut *self.running.lock(), Running::Ended);
        if let Running::Yes(orders, thread) = running {
            drop(orders);
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.end();
    }
}

impl Place {
    fn work(&self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Append(batches) => self.append(batches),
                // The caller may no longer exist.
                Order::Notify(done) => drop(done.send(())),
            }
        }
    }

    fn append(&self, batches: Vec<OwnBatch>) {
        let now_ms = self.replicas.wall_ms();
        let mut dirty = Vec::new();
        let mut ended = self.ended.lock();
        for own in batches {
            let (key, series, token) = ((own.topic, own.index), own.series, own.token);
            let appended = ended.append(key, series, || {
                // Without this thread no coordinator of the node could write.
                let appended = contained(|| self.append_one(own, now_ms));
                appended.unwrap_or(Err(ErrorCode::UNKNOWN_SERVER_ERROR))
            });
            match appended {
                Ok(Some(partition)) => dirty.push(partition),
                Ok(None) => {}
                Err(code) => self.acknowledge(token, code),
            }
        }
        self.replicas.mark_dirty(&dirty);
    }

    /// Appends one batch; returns the partition if its flusher must be notified.
    fn append_one(&self, own: OwnBatch, now_ms: i64) -> Result<Option<Arc<Partition>>, ErrorCode> {
        let mut batch = own.batch?;
        let partition = self.replicas.get(own.topic, own.index).map_err(|code| match code {
            // Coordinators know partitions by name, and so do their peers.
            ErrorCode::UNKNOWN_TOPIC_ID => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            other => other,
        })?;
        let required_acks = if own.needs_min_isr { -1 } else { 1 };
        let leader_epoch = own.series.map(|series| series.leader_epoch);
        let appended = partition.append_own(&mut batch, required_acks, own.origin, leader_epoch, now_ms);
        let (appended, wants_flush) = appended.map_err(|refused| refused.code)?;
        let (server, token) = (self.server.clone(), own.token);
        let on_ack = Box::new(move |code| server.events().push_acked(token, code));
        partition.when_acked(appended.end_offset, on_ack);
        Ok(wants_flush.then_some(partition))
    }

    fn acknowledge(&self, token: u64, code: ErrorCode) {
        self.server.events().push_acked(token, code);
    }
}
