//! Invariant: whatever a leader answers a follower's fetch, the follower neither panics nor hangs, takes only whole batches with
//! valid checksums, keeps its high watermark within its log, and follows on with the next valid answer unless the partition has
//! failed.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use klamm_base::clock::SystemClock;
use klamm_base::primitives::Writer;
use klamm_base::{ErrorCode, Uuid};
use klamm_client::messages::Request;
use klamm_config::Settings;
use klamm_fetcher::{Change, FollowedPartitions, ReplicaFetch, ReplicaFetchAnswer, Times};
use klamm_log::{LockedDir, LogContext, LogManager, ManagerConfig};
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{PartitionRecord, Record, TopicRecord};
use klamm_records::header::{Header, set_crc, set_position};
use klamm_records::{BatchBuilder, BatchFields, Compression, batches};
use klamm_replica::{Durability, Partition, Replicas, ReplicasOptions};
use klamm_wire::fetch::{FetchResponseWriter, FetchResult};

use crate::folder::Folder;

const NODE: i32 = 1;
const LEADER: i32 = 2;
const TOPIC: Uuid = Uuid([7; 16]);
const EPOCH: i32 = 3;
const TIMES: Times = Times { now_ms: 0, wall_ms: 0 };
const FIELDS: usize = 8;
const ERRORS: [ErrorCode; 8] = [
    ErrorCode::NONE,
    ErrorCode::NONE,
    ErrorCode::NONE,
    ErrorCode::OFFSET_OUT_OF_RANGE,
    ErrorCode::FENCED_LEADER_EPOCH,
    ErrorCode::UNKNOWN_LEADER_EPOCH,
    ErrorCode::UNKNOWN_TOPIC_ID,
    ErrorCode::CORRUPT_MESSAGE,
];

/// The records that a leader returns, then the other fields of its answer, one byte each.
pub fn replica_answers(data: &[u8]) {
    let Some((records, &[choices, error, high_watermark, start, epoch, end, at, value])) =
        data.split_last_chunk::<FIELDS>()
    else {
        return;
    };
    let folder = Folder::new();
    let mut follower = Follower::new(&folder);
    follower.fetch_one_batch();
    let records = if choices & 1 == 1 { mended(records, follower.end()) } else { records.to_vec() };
    let signed = |byte: u8| i64::from(byte.cast_signed());
    let result = FetchResult {
        high_watermark: if high_watermark == 0x7f { i64::MAX } else { signed(high_watermark) },
        log_start_offset: if start == 0x7f { i64::MAX } else { signed(start) },
        diverging: (choices & 2 == 2).then(|| (i32::from(epoch.cast_signed()), signed(end))),
        records_len: records.len(),
        ..FetchResult::refused(ERRORS[usize::from(error) % ERRORS.len()])
    };
    let version = ReplicaFetch::VERSION_MAX;
    let mut body = encoded(&result, &records, version);
    if choices & 4 == 4 && !body.is_empty() {
        let at = usize::from(at) % body.len();
        body[at] = value;
    }
    let answer = crate::heap::bounded(data, 0, || ReplicaFetch::read(&Bytes::from(body), version));
    if let Ok(answer) = answer {
        follower.take(answer, (signed(start), signed(end)));
    }
    follower.check();
    follower.fetch_one_batch();
    follower.check();
}

fn encoded(result: &FetchResult, records: &[u8], version: i16) -> Vec<u8> {
    let mut writer = Writer::new();
    let mut out = FetchResponseWriter::begin(&mut writer, version, ErrorCode::NONE, 1, 1);
    out.begin_topic("", TOPIC, 1);
    out.partition(0, result);
    out.try_records(records.len(), |room| {
        room.copy_from_slice(records);
        true
    });
    out.end_partition(result);
    out.end_topic();
    out.end(&[]);
    writer.into_bytes()
}

/// Lets the batches begin at `offset`, and fixes their checksums, to reach the code after these checks.
fn mended(records: &[u8], mut offset: i64) -> Vec<u8> {
    let mut records = records.to_vec();
    let mut at = 0;
    while let Some(size) = Header::at_start_of(&records[at..]).and_then(|header| header.size()) {
        let Some(batch) = records.get_mut(at..at + size) else { break };
        batch[16] = 2;
        set_position(batch, offset, EPOCH);
        set_crc(batch);
        offset = Header::at_start_of(batch).map_or(offset, |header| header.next_offset());
        at += size;
    }
    records
}

struct Follower {
    replicas: Replicas,
    followed: FollowedPartitions,
    partition: Arc<Partition>,
}

impl Follower {
    fn new(folder: &Folder) -> Self {
        let locked = vec![LockedDir::open(&folder.0, Uuid([9; 16])).expect("a new folder")];
        let config = ManagerConfig {
            flush_threads: 0,
            recovery_threads: 1,
            intervals: None,
            cleaner: None,
            ..ManagerConfig::default()
        };
        let logs =
            LogManager::start(locked, config, LogContext::volatile(8), 0, Arc::new(drop)).expect("an empty folder");
        let replicas = Replicas::new(ReplicasOptions {
            node_id: NODE,
            durability: Durability::PageCache,
            settings: Settings::new(HashMap::new()).expect("the defaults"),
            logs,
            is_missing_dirs: false,
            clock: Arc::new(SystemClock::default()),
        });
        let nodes = [NODE, LEADER];
        let record = PartitionRecord {
            topic_id: TOPIC,
            partition_id: 0,
            replicas: (&nodes[..]).into(),
            isr: (&nodes[..]).into(),
            leader: LEADER,
            leader_epoch: EPOCH,
            partition_epoch: 0,
            ..PartitionRecord::default()
        };
        let records = [Record::Topic(TopicRecord { name: "t", topic_id: TOPIC }), Record::Partition(record)];
        let encoded = records.map(|record| record.encode(0).expect("a record"));
        let image = MetadataImage::default().apply(encoded.iter().map(Vec::as_slice)).expect("records that fit");
        replicas.publish(Arc::new(image));
        let partition = replicas.get(TOPIC, 0).expect("a replica");
        let mut followed = FollowedPartitions::new(LEADER, 0);
        followed.change(Change::Add(partition.clone()), 0);
        Self { replicas, followed, partition }
    }

    fn end(&self) -> i64 {
        self.partition.with(|log| log.log_end_offset())
    }

    fn take(&mut self, answer: ReplicaFetchAnswer, leader_offsets: (i64, i64)) {
        for key in self.followed.on_answer(answer, TIMES) {
            self.followed.on_leader_offsets(key, Some(leader_offsets), TIMES);
        }
    }

    /// A valid answer, unless the partition has failed.
    fn fetch_one_batch(&mut self) {
        if self.followed.followed((TOPIC, 0)).is_none() || self.end() == i64::MAX {
            return;
        }
        let mut builder = BatchBuilder::new(BatchFields::default(), Compression::NONE);
        builder.append(0, None, Some(b"a record"), &[]).expect("small");
        let mut batch = builder.finish().expect("small");
        let end = self.end();
        set_position(&mut batch, end, EPOCH);
        let result = FetchResult {
            high_watermark: end + 1,
            log_start_offset: 0,
            records_len: batch.len(),
            ..FetchResult::refused(ErrorCode::NONE)
        };
        let version = ReplicaFetch::VERSION_MAX;
        let body = encoded(&result, &batch, version);
        self.take(ReplicaFetch::read(&Bytes::from(body), version).expect("a valid answer"), (0, end + 1));
        assert_eq!(self.end(), end + 1, "it follows on");
    }

    fn check(&self) {
        let (start, end) = self.partition.with(|log| (log.log_start_offset(), log.log_end_offset()));
        let high_watermark = self.partition.standing().high_watermark;
        assert!(start <= end && high_watermark <= end, "{start} {high_watermark} {end}");
        let mut from = start;
        while from < end {
            let read = self.partition.with(|log| log.read(from, 1 << 20, end, true)).expect("a log without damage");
            let bytes = read.read().expect("a file");
            if bytes.is_empty() {
                break;
            }
            for batch in batches(&bytes) {
                let batch = batch.expect("whole batches");
                batch.check_crc().expect("the follower checked it");
                assert!(batch.header().next_offset() > from);
                from = batch.header().next_offset();
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.replicas.logs().abandon();
    }
}
