//! Random operations on a log, compared with a simple model: a list of batches.

use std::path::PathBuf;

use klamm_records::{Header, batches, records};
use proptest::prelude::*;
use proptest::sample::Index;
use tempfile::{TempDir, tempdir};

use super::index::{OffsetPosition, TimestampOffset};
use super::names::{FileName, Kind};
use super::scan::Headers;
use super::testing::{BatchSpec, batch, config, create, open, read_all};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Append { records: i32, value_bytes: usize, timestamp: i64, epoch_up: bool },
    Roll,
    Truncate(Index),
    TruncateFully(i64),
    AdvanceStart(Index),
    Retain,
    Flush,
    Reopen { clean: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let append = (1..5i32, 0..300usize, 0..5000i64, prop::bool::weighted(0.05));
    prop_oneof![
        20 => append.prop_map(|(records, value_bytes, timestamp, epoch_up)| Step::Append { records, value_bytes, timestamp, epoch_up }),
        1 => Just(Step::Roll),
        1 => any::<Index>().prop_map(Step::Truncate),
        1 => (0..10_000i64).prop_map(Step::TruncateFully),
        1 => any::<Index>().prop_map(Step::AdvanceStart),
        1 => Just(Step::Retain),
        2 => Just(Step::Flush),
        2 => any::<bool>().prop_map(|clean| Step::Reopen { clean }),
    ]
}

struct Pair {
    _dir: TempDir,
    path: PathBuf,
    settings: LogConfig,
    log: Option<Log>,
    /// Batches of the log; the first ones may be below the log start offset.
    batches: Vec<Vec<u8>>,
    start: i64,
    end: i64,
    epoch: i32,
}

fn header(bytes: &[u8]) -> Header<'_> {
    Header::at_start_of(bytes).expect("a batch")
}

impl Pair {
    fn new() -> Self {
        let dir = tempdir().expect("temporary directory");
        let settings = LogConfig {
            segment_bytes: 3000,
            index_interval_bytes: 200,
            prepare_bytes: 200_000,
            retention_bytes: 9000,
            retention_ms: -1,
            ..config()
        };
        let path = dir.path().join("t-0");
        let log = Some(create(&path, settings.clone()));
        Self { _dir: dir, path, settings, log, batches: Vec::new(), start: 0, end: 0, epoch: 0 }
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().expect("open")
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Append { records, value_bytes, timestamp, epoch_up } => {
                self.epoch += i32::from(*epoch_up);
                let spec = BatchSpec {
                    records: *records,
                    value_bytes: *value_bytes,
                    timestamp: *timestamp,
                    ..BatchSpec::default()
                };
                let (mut bytes, epoch, end) = (batch(&spec), self.epoch, self.end);
                let appended = self.log().append_as_leader(&mut bytes, epoch, 0, Origin::Client).expect("append");
                assert_eq!(appended.base_offset, end);
                self.end = appended.last_offset + 1;
                self.batches.push(bytes);
            }
            Step::Roll => {
                let end = self.end;
                self.log().roll(end, 0).expect("roll");
            }
            Step::Truncate(index) => {
                let at = index.index(self.batches.len() + 1);
                let to = self.batches.get(at).map_or(self.end, |bytes| header(bytes).base_offset());
                if to < self.start {
                    return;
                }
                self.log().truncate_to(to, 0).expect("truncate");
                self.batches.retain(|bytes| header(bytes).base_offset() < to);
                self.end = to;
            }
            Step::TruncateFully(to) => {
                self.log().truncate_fully_and_start_at(*to, 0).expect("truncate");
                self.batches.clear();
                (self.start, self.end) = (*to, *to);
            }
            Step::AdvanceStart(index) => {
                let to = self.start + index.index((self.end - self.start + 1) as usize) as i64;
                self.log().advance_log_start(to);
                self.start = to;
            }
            Step::Retain => {
                let end = self.end;
                self.log().delete_expired(end, 0).expect("retention");
                let start = self.log().log_start_offset();
                assert!(start >= self.start);
                self.start = start;
                self.batches.retain(|bytes| header(bytes).last_offset() >= start);
            }
            Step::Flush => assert_eq!(self.log().flush().expect("flush"), self.end),
            Step::Reopen { clean } => self.reopen(*clean),
        }
        self.check();
    }

    fn reopen(&mut self, clean: bool) {
        let mut log = self.log.take().expect("open");
        if clean {
            log.close().expect("close");
        }
        let recovery_point = log.recovery_point();
        drop(log);
        let at = OpenAt { recovery_point, log_start_offset: self.start, clean, has_gaps: false, ..OpenAt::default() };
        let (config, context) = (self.settings.clone().into(), LogContext::new(16));
        let (log, recovery) = Log::open(&self.path, "t", 0, config, &context, at, 0).expect("open");
        assert_eq!(recovery.warnings, Vec::<String>::new());
        assert_eq!(recovery.bytes_truncated, 0);
        self.log = Some(log);
    }

    fn check(&mut self) {
        let (start, end) = (self.start, self.end);
        let log = self.log();
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (start, end));
        assert!(log.recovery_point() <= log.flushed_offset() && log.flushed_offset() <= end);
    }

    /// Compares the result of every query with the model's.
    fn check_all(&mut self) {
        let (start, end) = (self.start, self.end);
        let expected: Vec<Vec<u8>> =
            self.batches.iter().filter(|bytes| header(bytes).last_offset() >= start).cloned().collect();
        let log = self.log();
        assert_eq!(read_all(log, start), expected.concat());
        for offset in start..end {
            let slice = log.read(offset, 1, end, true).expect("read");
            let holds = |bytes: &&Vec<u8>| header(bytes).last_offset() >= offset;
            let wanted = expected.iter().find(holds).expect("in the log");
            assert_eq!(&slice.read().expect("read"), wanted);
        }
        let rows: Vec<(i64, i64)> =
            expected.iter().flat_map(|bytes| rows(bytes)).filter(|row| row.0 >= start).collect();
        for timestamp in (0..6000).step_by(250) {
            let slow = rows.iter().find(|row| row.1 >= timestamp).map(|row| (row.1, row.0));
            let fast =
                log.offset_for_timestamp(timestamp).expect("search").map(|found| (found.timestamp, found.offset));
            assert_eq!(fast, slow, "timestamp {timestamp}");
        }
        self.check_indexes();
    }

    fn check_indexes(&mut self) {
        let path = self.path.clone();
        let context = self.log().context.clone();
        for segment in self.log().segments_mut() {
            segment.write_indexes(&context.cache, false).expect("write");
            let file = segment.open(&context.cache).expect("open");
            let mut headers = Headers::new(&file, 0, segment.size(), segment.base_offset());
            let (mut ends, mut times) = (Vec::new(), Vec::new());
            while let Some(batch) = headers.next().expect("whole") {
                let (last, time) = (batch.header().last_offset(), batch.header().max_timestamp());
                ends.push(OffsetPosition { offset: last, position: batch.position as u32 });
                times.push(TimestampOffset { timestamp: time, offset: last });
            }
            let base = segment.base_offset();
            let read = |kind| std::fs::read(path.join(FileName::live(base, kind).to_string())).expect("read");
            for entry in read(Kind::OffsetIndex).chunks_exact(8) {
                let offset = base + i64::from(i32::from_be_bytes(entry[..4].try_into().expect("four")));
                let position = u32::from_be_bytes(entry[4..].try_into().expect("four"));
                assert!(ends.contains(&OffsetPosition { offset, position }), "{offset} at {position}: {ends:?}");
            }
            let mut before = -1;
            for entry in read(Kind::TimeIndex).chunks_exact(12) {
                let timestamp = i64::from_be_bytes(entry[..8].try_into().expect("eight"));
                let offset = base + i64::from(i32::from_be_bytes(entry[8..].try_into().expect("four")));
                assert!(times.contains(&TimestampOffset { timestamp, offset }), "{timestamp} at {offset}: {times:?}");
                assert!(timestamp > before, "timestamps rise");
                let earlier = times.iter().take_while(|time| time.offset < offset);
                assert!(earlier.map(|time| time.timestamp).max().unwrap_or(-1) <= timestamp);
                before = timestamp;
            }
        }
    }
}

fn rows(bytes: &[u8]) -> Vec<(i64, i64)> {
    let batch = batches(bytes).next().expect("one").expect("whole");
    let mut buffer = Vec::new();
    let records = records(batch, &mut buffer, 1 << 20).expect("readable").map(|record| record.expect("valid"));
    records.map(|record| (record.offset, record.timestamp)).collect::<Vec<_>>()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn a_log_is_a_list_of_batches(steps in proptest::collection::vec(step(), 1..120)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.run(step);
        }
        pair.check_all();
        pair.reopen(true);
        pair.check_all();
        pair.reopen(false);
        pair.check_all();
    }
}

#[test]
fn a_truncation_within_a_batch_removes_the_batch() {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    let mut log = create(&path, config());
    for _ in 0..3 {
        let mut bytes = batch(&BatchSpec { records: 3, ..BatchSpec::default() });
        log.append_as_leader(&mut bytes, 0, 0, Origin::Client).expect("append");
    }
    assert!(log.truncate_to(4, 0).expect("truncate"));
    assert_eq!(log.log_end_offset(), 4);
    assert_eq!(read_all(&mut log, 0).len(), batch(&BatchSpec { records: 3, ..BatchSpec::default() }).len());
    drop(log);
    assert_eq!(open(&path, config(), false, 0).0.log_end_offset(), 3);
}
