//! Appends of this node's coordinators, on a thread of their own.
//!
//! A write to a file waits now and then for the disk, for as long as the file system commits what others have written.
//! Whoever decides must not wait with it. What is given here is appended in the order in which it was given.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use klamm_base::clock::now_ms;
use klamm_base::{ErrorCode, Uuid};
use klamm_log::Origin;
use klamm_net::Server;
use klamm_replica::{Partition, Replicas};
use parking_lot::Mutex;

/// A batch of a coordinator of this node.
pub struct OwnBatch {
    /// The partition that it is for.
    pub index: i32,
    pub batch: Vec<u8>,
    /// What its end is told by.
    pub token: u64,
}

enum Order {
    /// Batches for partitions of one topic.
    Append(Uuid, Vec<OwnBatch>),
    /// Tell when all before it is done.
    Tell(Sender<()>),
}

/// The thread, which is there from the first append on; it ends with `end`, or when this is dropped.
pub struct Appender {
    place: Arc<Place>,
    running: Mutex<Running>,
}

enum Running {
    NotYet,
    Yes(Sender<Order>, JoinHandle<()>),
    Ended,
}

/// Where to append, and whom to tell.
struct Place {
    replicas: Arc<Replicas>,
    server: Arc<Server>,
}

impl Appender {
    pub fn new(replicas: Arc<Replicas>, server: Arc<Server>) -> Self {
        Self { place: Arc::new(Place { replicas, server }), running: Mutex::new(Running::NotYet) }
    }

    /// Appends each batch to its partition of `topic`, soon. Each token comes back as an event when its batch is committed,
    /// or was refused, or can no longer be committed.
    pub fn append(&self, topic: Uuid, batches: Vec<OwnBatch>) -> std::io::Result<()> {
        let mut running = self.running.lock();
        if let Running::NotYet = &*running {
            let (orders, taken) = channel();
            let place = self.place.clone();
            let thread =
                std::thread::Builder::new().name("klamm-append".to_owned()).spawn(move || place.work(&taken))?;
            *running = Running::Yes(orders, thread);
        }
        match &*running {
            Running::Yes(orders, _) => {
                orders.send(Order::Append(topic, batches)).expect("it ends only when it is told to")
            }
            _ => batches.iter().for_each(|it| self.place.tell(it.token, ErrorCode::NOT_LEADER_OR_FOLLOWER)),
        }
        Ok(())
    }

    /// Returns when all that was given before is appended.
    pub fn settle(&self) {
        let (told, done) = channel();
        if let Running::Yes(orders, _) = &*self.running.lock() {
            orders.send(Order::Tell(told)).expect("it ends only when it is told to");
        } else {
            return;
        }
        // An error: it has ended meanwhile, after all that it was given.
        let _ = done.recv();
    }

    /// Appends what was given, and ends the thread.
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
                Order::Append(topic, batches) => self.append(topic, batches),
                // Who asked may be gone.
                Order::Tell(done) => drop(done.send(())),
            }
        }
    }

    fn append(&self, topic: Uuid, batches: Vec<OwnBatch>) {
        let now_ms = now_ms();
        let mut dirty = Vec::new();
        for OwnBatch { index, mut batch, token } in batches {
            match self.append_one(topic, index, &mut batch, token, now_ms) {
                Ok(Some(partition)) => dirty.push(partition),
                Ok(None) => {}
                Err(code) => self.tell(token, code),
            }
        }
        self.replicas.mark_dirty(&dirty);
    }

    /// The partition when its flusher has to be told.
    fn append_one(
        &self,
        topic: Uuid,
        index: i32,
        batch: &mut [u8],
        token: u64,
        now_ms: i64,
    ) -> Result<Option<Arc<Partition>>, ErrorCode> {
        let partition = self.replicas.get(topic, index)?;
        let appended = partition.append_unmarked(batch, -1, Origin::Coordinator, now_ms);
        let (appended, wants_flush) = appended.map_err(|refused| refused.code)?;
        let server = self.server.clone();
        let tell = Box::new(move |code| server.events().push_acked(token, code));
        partition.when_acked(appended.end_offset, tell);
        Ok(wants_flush.then_some(partition))
    }

    fn tell(&self, token: u64, code: ErrorCode) {
        self.server.events().push_acked(token, code);
    }
}
