//! Random histories of transactional producers of both versions, with verifications, late and repeated markers, restarts and
//! truncations, compared with a model of what was committed.
//!
//! Invariants: (1) a consumer that reads committed records receives exactly the records of committed transactions and those outside of
//! any, up to the last stable offset; (2) that offset is where the model has the first undecided record, and never moves
//! back while the high watermark rises; (3) a follower has the leader's transactions and index; (4) a transaction begins only with
//! a verification after the last marker, and a late marker never ends a newer transaction of TV2.

use std::collections::{BTreeMap, HashSet};

use klamm_records::control::end_transaction_marker;
use klamm_records::{Header, batches};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use super::Marker;
use crate::testing::{BatchSpec, batch, config, create, open, read_all};
use crate::{Claim, Guard, Log, LogConfig, Origin};

const PRODUCERS: u8 = 3;
const BATCHES_IN_SEGMENT: usize = 10;

#[derive(Clone, Debug)]
enum Step {
    /// A producer's partition is verified or added.
    Verify(u8),
    /// A producer sends its next batch, with its last guard.
    Produce(u8, i32),
    Plain,
    /// The coordinator ends the producer's transaction; sometimes once more.
    End {
        producer: u8,
        commits: bool,
        is_repeated: bool,
    },
    /// A marker of the producer's last transaction arrives late.
    Late(u8),
    /// The follower fetches, with that many batches per append, and its records are committed.
    Replicate(usize),
    Roll,
    Restart {
        is_clean: bool,
    },
    /// The follower, whose log may be shorter, leads from now on.
    Elect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let producer = 0..PRODUCERS;
    let step = prop_oneof![
        4 => producer.clone().prop_map(Step::Verify),
        8 => (producer.clone(), 1..4i32).prop_map(|(producer, records)| Step::Produce(producer, records)),
        2 => Just(Step::Plain),
        4 => (producer.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(producer, commits, is_repeated)| Step::End { producer, commits, is_repeated }),
        2 => producer.prop_map(Step::Late),
        5 => prop_oneof![1..4usize, Just(usize::MAX)].prop_map(Step::Replicate),
        1 => Just(Step::Roll),
        1 => any::<bool>().prop_map(|is_clean| Step::Restart { is_clean }),
        1 => Just(Step::Elect),
    ];
    proptest::collection::vec(step, 1..80)
}

/// A client and its coordinator. Producers 1 and 3 are of TV2.
struct Producer {
    id: i64,
    bumps_epoch: bool,
    epoch: i16,
    sequence: i32,
    guard: Option<Guard>,
    /// No marker of the producer was appended since its last verification.
    is_verified: bool,
    last: Option<(i16, bool)>,
}

struct World {
    dir: TempDir,
    settings: LogConfig,
    leader: Log,
    follower: Log,
    /// The number of the leader's directory.
    place: usize,
    producers: Vec<Producer>,
    high_watermark: i64,
    last_stable_offset: i64,
}

impl World {
    fn new() -> Self {
        let dir = tempdir().expect("temporary directory");
        let settings = LogConfig { segment_bytes: 1500, index_interval_bytes: 100, ..config() };
        let create = |at: usize| create(&dir.path().join(format!("t-{at}")), settings.clone());
        let (leader, follower) = (create(0), create(1));
        let producer = |number| Producer {
            id: i64::from(number),
            bumps_epoch: number % 2 == 1,
            epoch: 0,
            sequence: 0,
            guard: None,
            is_verified: false,
            last: None,
        };
        let producers = (0..PRODUCERS).map(producer).collect();
        Self { dir, settings, leader, follower, place: 0, producers, high_watermark: 0, last_stable_offset: 0 }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Verify(at) => {
                let producer = &mut self.producers[usize::from(at)];
                let claim = Claim {
                    producer_id: producer.id,
                    producer_epoch: producer.epoch,
                    base_sequence: producer.sequence,
                };
                if let Ok(guard) = self.leader.begin_verification(claim, producer.bumps_epoch, 0) {
                    producer.guard = guard;
                    producer.is_verified = guard.is_some();
                }
            }
            Step::Produce(at, records) => {
                let producer = &mut self.producers[usize::from(at)];
                let of = (producer.id, producer.epoch, producer.sequence);
                let spec = BatchSpec { producer: Some(of), records, transactional: true, ..BatchSpec::default() };
                let origin = Origin::VerifiedClient(producer.guard);
                let is_open = self.leader.producers.has_ongoing(producer.id, producer.epoch);
                if self.leader.append_as_leader(&mut batch(&spec), 0, 0, origin).is_ok_and(|done| !done.duplicate) {
                    assert!(is_open || producer.is_verified, "a transaction of {of:?} that no marker will end");
                    producer.sequence += records;
                }
            }
            Step::Plain => {
                self.leader.append_as_leader(&mut batch(&BatchSpec::default()), 0, 0, Origin::Client).expect("append");
            }
            Step::End { producer: at, commits, is_repeated } => {
                let producer = &mut self.producers[usize::from(at)];
                if producer.bumps_epoch {
                    producer.epoch += 1;
                    producer.sequence = 0;
                }
                producer.last = Some((producer.epoch, commits));
                for _ in 0..=u8::from(is_repeated) {
                    self.mark(at);
                }
            }
            Step::Late(at) => self.mark(at),
            Step::Replicate(batches_max) => self.replicate(batches_max),
            Step::Roll => {
                let end = self.leader.log_end_offset();
                self.leader.roll(end, 0).expect("roll");
            }
            Step::Restart { is_clean } => {
                let recovery_point = self.leader.flush().expect("flush");
                if is_clean {
                    self.leader.close().expect("close");
                }
                let path = self.path(self.place);
                self.leader = open(&path, self.settings.clone(), is_clean, recovery_point / 2).0;
            }
            Step::Elect => {
                // What is only in the old leader's log is truncated.
                let end = self.follower.log_end_offset();
                if self.leader.log_end_offset() > end {
                    // A marker that was not committed may be lost: the coordinator sends it again.
                    self.producers.iter_mut().for_each(|producer| producer.is_verified = true);
                }
                self.leader.truncate_to(end, 0).expect("truncate");
                std::mem::swap(&mut self.leader, &mut self.follower);
                self.place = 1 - self.place;
            }
        }
    }

    fn path(&self, at: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("t-{at}"))
    }

    /// Appends the last marker of a producer, perhaps once more.
    fn mark(&mut self, at: u8) {
        let producer = &mut self.producers[usize::from(at)];
        let Some((epoch, commits)) = producer.last else { return };
        let is_newer_open = self.leader.producers.has_ongoing(producer.id, epoch);
        let mut bytes = end_transaction_marker(producer.id, epoch, 0, commits, 0).expect("small");
        let transaction_version = if producer.bumps_epoch { 2 } else { 0 };
        if self.leader.append_as_leader(&mut bytes, 0, 0, Origin::Markers { transaction_version }).is_ok() {
            assert!(!(producer.bumps_epoch && is_newer_open), "a marker of epoch {epoch} came late");
            // The marker of a TV2 producer starts the pending epoch.
            producer.is_verified &= producer.bumps_epoch;
        }
    }

    fn replicate(&mut self, batches_max: usize) {
        let from = self.follower.log_end_offset();
        let bytes = read_all(&mut self.leader, from);
        let found: Vec<&[u8]> = batches(&bytes).map(|batch| batch.expect("whole").bytes()).collect();
        for some in found.chunks(batches_max.min(BATCHES_IN_SEGMENT)) {
            self.follower.append_as_follower(&some.concat(), 0, 0).expect("the leader's batches");
        }
        self.high_watermark = self.leader.log_end_offset();
    }

    fn check(&mut self) {
        let high_watermark = self.high_watermark;
        let expected = committed(&mut self.leader, high_watermark);
        let stable = self.leader.last_stable_offset(high_watermark);
        assert_eq!(stable, expected.stable, "the first undecided record");
        assert!(stable >= self.last_stable_offset, "{stable} after {}", self.last_stable_offset);
        self.last_stable_offset = stable;
        assert_eq!(self.follower.last_stable_offset(high_watermark), stable);
        let index = self.leader.aborted_between(0, high_watermark).expect("read");
        assert_eq!(self.follower.aborted_between(0, high_watermark).expect("read"), index);
        for max_bytes in [1, 250, 1 << 20] {
            assert_eq!(consumed(&mut self.leader, stable, max_bytes), expected.offsets, "{max_bytes} bytes a fetch");
        }
    }
}

struct Committed {
    stable: i64,
    /// The first offsets of the batches that a consumer receives.
    offsets: Vec<i64>,
}

/// The batches of the log, evaluated without its state.
fn committed(log: &mut Log, high_watermark: i64) -> Committed {
    let bytes = read_all(log, 0);
    let mut open: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let (mut stable, mut offsets) = (high_watermark, Vec::new());
    for found in batches(&bytes) {
        let found = found.expect("whole");
        let header = found.header();
        match Marker::parse(found.bytes()).filter(|_| header.is_control()) {
            Some(marker) => {
                let ended = open.remove(&header.producer_id()).unwrap_or_default();
                if header.base_offset() >= high_watermark {
                    stable = ended.first().map_or(stable, |first| stable.min(*first));
                }
                if !marker.aborted {
                    offsets.extend(ended);
                }
            }
            None if header.is_transactional() => {
                open.entry(header.producer_id()).or_default().push(header.base_offset());
            }
            None => offsets.push(header.base_offset()),
        }
    }
    stable = open.values().filter_map(|of| of.first()).fold(stable, |least, first| least.min(*first));
    offsets.retain(|offset| *offset < stable);
    offsets.sort_unstable();
    Committed { stable, offsets }
}

/// The records that a consumer receives with Apache Kafka's algorithm (`CompletedFetch`), with fetches of at most
/// `max_bytes`.
fn consumed(log: &mut Log, upto: i64, max_bytes: usize) -> Vec<i64> {
    let (mut offset, mut received) = (0, Vec::new());
    while offset < upto {
        let slice = log.read(offset, max_bytes, upto, true).expect("read");
        let mut aborted = log.aborted_transactions(offset, &slice).expect("read");
        aborted.sort_by_key(|it| std::cmp::Reverse(it.first_offset));
        let bytes = slice.read().expect("read");
        let mut skipped = HashSet::new();
        let mut at = 0;
        while let Some(header) = Header::at_start_of(&bytes[at..]) {
            // A fetch may end within a batch.
            let Some(size) = header.size().filter(|size| at + size <= bytes.len()) else { break };
            while aborted.last().is_some_and(|it| it.first_offset <= header.last_offset()) {
                skipped.extend(aborted.pop().map(|it| it.producer_id));
            }
            if header.is_control() {
                if Marker::parse(&bytes[at..at + size]).is_some_and(|marker| marker.aborted) {
                    skipped.remove(&header.producer_id());
                }
            } else if !(header.is_transactional() && skipped.contains(&header.producer_id())) {
                received.push(header.base_offset());
            }
            offset = header.next_offset();
            at += size;
        }
        assert!(at > 0, "no batch at {offset} of {upto}");
    }
    received
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn consumers_read_committed_records(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
            // Only replicated records are visible.
            if matches!(step, Step::Replicate(_) | Step::Elect | Step::Restart { .. }) {
                world.replicate(1);
                world.check();
            }
        }
    }
}
