//! Fetches against a leader's direct answers, with a log in a temporary folder.

mod body;
mod committing;
mod model;
mod reporting;
mod taking;
mod threads;
mod waiting;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use klamm_base::primitives::Reader;
use klamm_log::LogContext;
use tempfile::TempDir;

use super::*;
use crate::{OnLoss, QuorumLogConfig};

const EPOCH: i32 = 7;
/// The log of a scene: four records of the previous epoch and three of the current epoch, of which the first is
/// flushed.
const START: i64 = 4;
const FLUSHED: i64 = 5;
const END: i64 = 7;
/// A broker, in addition to the voters 2 and 3 and the leader 1.
const BROKER: i32 = 9;
const LONG: Duration = Duration::from_secs(3600);

fn directory(id: i32) -> Uuid {
    Uuid([id as u8; 16])
}

/// The voters 1, 2 and 3, which all have everything that is committed.
fn lead() -> Lead {
    let endpoint = NodeEndpoint { node_id: 1, host: "localhost".to_owned(), port: 9093, rack: None };
    Lead {
        cluster_id: "cluster".to_owned(),
        leader_id: 1,
        epoch: EPOCH,
        start_offset: START,
        high_watermark: FLUSHED,
        voters: vec![(2, FLUSHED), (3, FLUSHED)],
        counts_itself: true,
        endpoints: vec![("CONTROLLER".to_owned(), endpoint)],
        take_timeout: LONG,
    }
}

/// The content of a fetch. By default voter 2 has all records, knows no high watermark, and does not wait.
#[derive(Clone, Copy)]
struct Fetch {
    cluster_id: Option<&'static str>,
    replica_id: i32,
    directory: Option<Uuid>,
    epoch: i32,
    offset: i64,
    last_epoch: i32,
    /// Since version 18; `None` if it is not set.
    high_watermark: Option<i64>,
    max_wait_ms: i32,
    max_bytes: i32,
    /// Topics with their partition numbers.
    topics: &'static [(Uuid, &'static [i32])],
}

const FETCH: Fetch = Fetch {
    cluster_id: Some("cluster"),
    replica_id: 2,
    directory: Some(Uuid([2; 16])),
    epoch: EPOCH,
    offset: END,
    last_epoch: EPOCH,
    high_watermark: None,
    max_wait_ms: 0,
    max_bytes: 1 << 20,
    topics: &[(METADATA_TOPIC_ID, &[0])],
};
/// The same fetch, but it waits.
const PATIENT: Fetch = Fetch { max_wait_ms: 60_000, ..FETCH };

impl Fetch {
    fn of(self, id: i32) -> Self {
        Self { replica_id: id, directory: Some(directory(id)), ..self }
    }

    fn at(self, offset: i64) -> Self {
        Self { offset, ..self }
    }

    fn knowing(self, high_watermark: i64) -> Self {
        Self { high_watermark: Some(high_watermark), ..self }
    }

    /// Encoded in the given version, 12 at least.
    fn body(&self, version: i16) -> Vec<u8> {
        let mut out = Writer::new();
        if version <= 14 {
            out.i32(self.replica_id);
        }
        out.i32(self.max_wait_ms);
        out.i32(0);
        out.i32(self.max_bytes);
        out.i8(0);
        out.i32(0);
        out.i32(-1);
        out.compact_array_len(self.topics.len());
        for (topic, partitions) in self.topics {
            match version {
                13.. => out.uuid(*topic),
                _ => out.compact_string("__cluster_metadata"),
            }
            out.compact_array_len(partitions.len());
            partitions.iter().for_each(|index| self.write_partition(&mut out, version, *index));
            out.no_tagged_fields();
        }
        out.compact_array_len(0);
        out.compact_string("");
        out.unsigned_varint(u32::from(self.cluster_id.is_some()) + u32::from(version >= 15));
        if let Some(cluster_id) = self.cluster_id {
            out.tagged_field(0, |field| field.compact_string(cluster_id));
        }
        if version >= 15 {
            out.tagged_field(1, |field| (field.i32(self.replica_id), field.i64(-1), field.no_tagged_fields()).2);
        }
        out.into_bytes()
    }

    fn write_partition(&self, out: &mut Writer, version: i16, index: i32) {
        out.i32(index);
        out.i32(self.epoch);
        out.i64(self.offset);
        out.i32(self.last_epoch);
        out.i64(-1);
        out.i32(0);
        let directory = self.directory.filter(|_| version >= 17);
        let high_watermark = self.high_watermark.filter(|_| version >= 18);
        out.unsigned_varint(u32::from(directory.is_some()) + u32::from(high_watermark.is_some()));
        directory.iter().for_each(|id| out.tagged_field(0, |field| field.uuid(*id)));
        high_watermark.iter().for_each(|offset| out.tagged_field(1, |field| field.i64(*offset)));
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Bell {
    fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Scene {
    log: Arc<QuorumLog>,
    answering: Arc<Answering>,
    listener: Arc<str>,
    _dir: TempDir,
}

impl Scene {
    /// Without a lease.
    fn idle() -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let config = QuorumLogConfig { segment_bytes: 16 << 20, segment_ms: 1 << 40, advice: None };
        let context = LogContext::new(16);
        let log =
            Arc::new(QuorumLog::open(&dir.path().join("log-0"), &config, &context, OnLoss::Refuse, 0).expect("open").0);
        let answering = Arc::new(Answering::new(log.clone()).expect("a descriptor"));
        let scene = Self { log, answering, listener: "CONTROLLER".into(), _dir: dir };
        for (count, epoch) in [(START, EPOCH - 1), (FLUSHED - START, EPOCH)] {
            (0..count).for_each(|_| scene.append_in(epoch));
        }
        scene.flush();
        (FLUSHED..END).for_each(|_| scene.append_in(EPOCH));
        scene
    }

    /// With a lease for the voters and the broker.
    fn led(lead: Lead) -> Self {
        let scene = Self::idle();
        scene.begin(lead);
        scene
    }

    fn begin(&self, lead: Lead) {
        let voters: Vec<i32> = lead.voters.iter().map(|(id, _)| *id).collect();
        self.answering.begin(lead);
        for (slot, id) in voters.iter().enumerate() {
            assert_eq!(self.answering.add_replica(*id, directory(*id), true), Some(slot));
        }
        assert_eq!(self.answering.add_replica(BROKER, directory(BROKER), false), Some(voters.len()));
    }

    /// Appends a record as a batch of its own, so that the next fetch may start at any record.
    fn append_in(&self, epoch: i32) {
        self.log.append(&[b"value"], epoch, 0).expect("append");
        self.answering.offer();
    }

    fn append(&self) {
        self.append_in(EPOCH);
    }

    fn flush(&self) {
        let (offset, job) = self.log.flush_here().expect("flush");
        self.answering.flushed(offset);
        self.log.prepare(job);
    }

    /// Removes the log below `offset` by a snapshot.
    fn clean_before(&self, offset: i64) {
        use klamm_metadata::checkpoint::{CheckpointHeader, write_values};
        let id = crate::SnapshotId { end_offset: offset, epoch: EPOCH };
        let header = CheckpointHeader { epoch: EPOCH, last_contained_log_timestamp: 0, control_records: Vec::new() };
        write_values(&self.log.snapshot_path(id), &[b"value"], &header, 0).expect("write");
        self.log.snapshot_finished(id).expect("finish");
        assert!(self.log.delete_before(id, 0).expect("delete"));
        assert_eq!(self.log.start_offset(), offset);
    }

    fn take_body(&self, version: i16, body: &[u8], bell: &Arc<Bell>) -> Taken {
        self.answering.take(&self.listener, version, body, &Waker::from(bell.clone()))
    }

    fn take(&self, fetch: Fetch) -> Taken {
        self.take_body(18, &fetch.body(18), &Arc::default())
    }

    fn is_taken(&self, fetch: Fetch) -> bool {
        !matches!(self.take(fetch), Taken::Outside)
    }

    /// Whether the fetch is answered here; also checks what is recorded.
    fn takes(&self, fetch: Fetch) -> bool {
        self.takes_body(18, &fetch.body(18))
    }

    fn takes_body(&self, version: i16, body: &[u8]) -> bool {
        self.answering.take_fetches();
        let is_taken = !matches!(self.take_body(version, body, &Arc::default()), Taken::Outside);
        assert_eq!(self.answering.take_fetches().len(), usize::from(is_taken));
        is_taken
    }

    /// The answer to a fetch that is answered immediately.
    fn answer(&self, fetch: Fetch) -> Answer {
        match self.take(fetch) {
            Taken::Answered(body) => Answer::read(&body),
            taken => panic!("it {} where an answer was expected", what(&taken)),
        }
    }

    /// A fetch that waits, and its waker.
    fn wait(&self, fetch: Fetch) -> (Waiting, Arc<Bell>) {
        let bell = Arc::default();
        match self.take_body(18, &fetch.body(18), &bell) {
            Taken::Waits(waiting) => (waiting, bell),
            taken => panic!("it {} where it was expected to wait", what(&taken)),
        }
    }

    fn high_watermark(&self) -> i64 {
        self.answering.state.lock().led.as_ref().expect("begun").lead.high_watermark
    }

    fn waiter_count(&self) -> usize {
        self.answering.state.lock().waiting.len()
    }

    /// Whether the descriptor is readable, as it should be if there is something to process.
    fn is_raised(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.answering.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd is passed.
        let is_readable = unsafe { libc::poll(&mut poll, 1, 0) } == 1;
        assert_eq!(self.answering.has_news(), is_readable);
        is_readable
    }
}

fn what(taken: &Taken) -> &'static str {
    match taken {
        Taken::Answered(_) => "was answered",
        Taken::Waits(_) => "waits",
        Taken::Outside => "is left outside",
    }
}

/// The answer to a fetch that waited.
fn answered(looked: Looked) -> Answer {
    match looked {
        Looked::Answered(body) => Answer::read(&body),
        Looked::Waits => panic!("it waits where an answer was expected"),
        Looked::Outside => panic!("it is outside where an answer was expected"),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    high_watermark: i64,
    log_start_offset: i64,
    records: Vec<u8>,
    /// Node id and epoch.
    leader: (i32, i32),
}

impl Answer {
    /// Parses the parts that [`body`] does not check.
    fn read(body: &[u8]) -> Self {
        let mut reader = Reader::new(body);
        reader.slice(34).expect("up to the partition's error");
        let (high_watermark, last_stable_offset) = (reader.i64().expect("offset"), reader.i64().expect("offset"));
        let log_start_offset = reader.i64().expect("offset");
        let (aborted, preferred) = (reader.compact_nullable_array_len(1).expect("count"), reader.i32().expect("id"));
        assert_eq!((last_stable_offset, aborted, preferred), (-1, None, -1));
        let records = reader.compact_bytes().expect("records").to_vec();
        let mut leader = (-1, -1);
        let tags = reader.tagged_fields(|tag, field| {
            assert_eq!(tag, 1);
            leader = (field.i32()?, field.i32()?);
            field.skip_tagged_fields().map(|()| true)
        });
        tags.expect("one field");
        Self { high_watermark, log_start_offset, records, leader }
    }
}
