//! The measures.
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use klamm_metadata::MetadataImage;
use klamm_metadata::checkpoint::{CheckpointHeader, load_snapshot, write_snapshot};
use klamm_metadata::delta::Delta;
use klamm_metadata::elections::{BrokerEvent, ElectionDefaults, Elections};
use klamm_metadata::records::PartitionChangeRecord;
use klamm_replica::core::{
    Assignment, Awaits, BrokerStanding, Brokers, Effects, FollowerFetch, FollowerSession, LogOffsets, PartitionCore,
    Waiter,
};

use parking_lot::Mutex;

use crate::cluster::{PARTITIONS_OF_A_TOPIC, apply, cluster, encoded, topic, topic_id};
use crate::{Options, Row, Unit, timed};

/// The number of topics in a round of a short measure.
const SAMPLE: usize = 1000;
const WATERMARK_UPDATES: usize = 1_000_000;

/// Prints every row.
pub fn measure(options: &Options) {
    watermark(options);
    create(options, "an empty cluster", &cluster(0));
    create(options, "4 000 topics", &cluster(4000));
    create_many(options);
    let topics = options.partitions / PARTITIONS_OF_A_TOPIC;
    let image = cluster(topics);
    create(options, &format!("{topics} topics"), &image);
    change(options, &image, topics);
    outage(options, &image, topics);
    snapshot(options, &image);
}

/// Every broker is active.
struct Active;

impl Brokers for Active {
    fn standing(&self, _broker_id: i32) -> Option<BrokerStanding> {
        Some(BrokerStanding { epoch: 1, is_active: true })
    }

    fn is_in_rack(&self, _broker_id: i32, _rack: &str) -> bool {
        false
    }
}

/// A fetch that waits.
struct Waiting;

#[derive(Clone)]
struct Session;

impl FollowerSession for Session {
    fn last_fetch_ms(&self) -> i64 {
        0
    }

    fn is_same(&self, _other: &Self) -> bool {
        false
    }
}

impl Waiter for Waiting {
    type Session = Session;

    fn has_ended(&self) -> bool {
        false
    }
}

/// The leader of a partition with two followers, and the effects of its events, whose memory is used again.
struct Leader {
    core: PartitionCore<i64, Waiting>,
    offsets: LogOffsets,
    effects: Effects<i64, Waiting>,
}

impl Leader {
    fn new() -> Self {
        let end = WATERMARK_UPDATES as i64;
        let offsets = LogOffsets { start: 0, end, counted: end };
        let (replicas, isr) = (vec![1, 2, 3], vec![1, 2, 3]);
        let assignment = Assignment { leader: 1, leader_epoch: 1, partition_epoch: 1, replicas, isr };
        let (mut core, mut effects) = (PartitionCore::new(1, 30_000, 0, 2), Effects::default());
        core.on_assignment(&assignment, &offsets, 0, &Active, &mut effects);
        Self { core: black_box(core), offsets, effects }
    }

    fn on_fetch(&mut self, update: i64) {
        let fetch = FollowerFetch {
            replica_id: black_box(2 + (update & 1) as i32),
            broker_epoch: 1,
            fetch_offset: black_box(update),
            log_start_offset: 0,
            leader_end_offset: self.offsets.end,
        };
        let now_ms = black_box(update / 1000);
        let done = self.core.on_follower_fetch(&fetch, &self.offsets, now_ms, &Active, &mut self.effects);
        done.expect("a follower of this leader");
    }

    /// A produce and a consumer's fetch that the next advance completes.
    fn wait(&mut self) {
        assert!(self.core.await_ack(self.core.high_watermark() + 1, 0).is_none(), "it has to wait");
        assert!(self.core.await_data(Awaits::HighWatermark, Waiting).is_none(), "it waits");
    }

    fn take_woken(&mut self) -> usize {
        let woken = self.effects.acks.len() + self.effects.fetches.len();
        self.effects.acks.clear();
        self.effects.fetches.clear();
        woken
    }
}

fn watermark(options: &Options) {
    let row = |name: &str, unit: Unit, goal: Option<f64>| {
        let name = format!("high watermark, one fetch of one of two followers{name}");
        Row { number: 22, name, unit, goal, times: WATERMARK_UPDATES as f64 }
    };
    let end = WATERMARK_UPDATES as i64;
    options.report(&row("", Unit::Nanoseconds, Some(50.0)), || {
        let mut leader = Leader::new();
        timed(|| {
            (0..end).for_each(|update| leader.on_fetch(update));
            assert_eq!(leader.core.high_watermark(), end - 2, "it follows the slower of the two");
        })
    });
    let through_lock = |leader: &Mutex<Leader>| (0..end).for_each(|update| leader.lock().on_fetch(update));
    let waited_for = || {
        let mut leader = Leader::new();
        assert!(leader.core.await_ack(end, 0).is_none(), "it waits for the whole log");
        Mutex::new(leader)
    };
    options.report(&row(", through a lock, with a produce that waits", Unit::Nanoseconds, Some(50.0)), || {
        let leader = waited_for();
        timed(|| through_lock(&leader))
    });
    // Each advance completes a produce and a fetch; others keep waiting.
    let ends_waiters = |leader: &Mutex<Leader>| {
        let mut woken = 0;
        for update in 0..end {
            let mut leader = leader.lock();
            if update > 2 {
                leader.wait();
            }
            leader.on_fetch(update);
            woken += leader.take_woken();
        }
        assert!(woken > WATERMARK_UPDATES, "{woken} requests were woken");
    };
    options.report(&row(", ends a produce and a fetch", Unit::Nanoseconds, None), || {
        let leader = Mutex::new(Leader::new());
        timed(|| ends_waiters(&leader))
    });
    let leader = waited_for();
    options.report_allocations(&row(", through a lock", Unit::Allocations, Some(0.0)), || through_lock(&leader));
}

/// A controller applies a creation twice: to the speculative and to the committed image.
fn create(options: &Options, among: &str, image: &MetadataImage) {
    let name = format!("apply one created topic among {among}");
    let row = Row { number: 10, name, unit: Unit::Microseconds, goal: None, times: SAMPLE as f64 };
    let first = image.topics().len();
    let batches: Vec<Vec<Vec<u8>>> = (first..first + SAMPLE).map(|index| topic(image, index, 1)).collect();
    options.report(&row, || {
        let mut newest = image.clone();
        batches.iter().map(|records| timed(|| newest = apply(&newest, records))).sum()
    });
}

fn create_many(options: &Options) {
    let image = cluster(0);
    let batch = |topics: usize, partitions: usize| -> Vec<Vec<u8>> {
        (0..topics).flat_map(|index| topic(&image, index, partitions)).collect()
    };
    for (name, records) in
        [("1 000 topics of 1 partition", batch(1000, 1)), ("5 topics of 1 000 partitions", batch(5, 1000))]
    {
        let name = format!("apply {name} created in one request");
        let row = Row { number: 11, name, unit: Unit::Milliseconds, goal: None, times: 1.0 };
        options.report(&row, || timed(|| apply(&image, &records)));
    }
}

fn change(options: &Options, image: &MetadataImage, topics: usize) {
    let isr = [1, 2];
    let records: Vec<[Vec<u8>; 1]> = (0..SAMPLE)
        .map(|index| PartitionChangeRecord {
            topic_id: topic_id(index * 7919 % topics),
            partition_id: 0,
            isr: Some(isr.as_slice().into()),
            ..PartitionChangeRecord::default()
        })
        .map(|record| [encoded(record)])
        .collect();
    let name = format!("apply one change to one topic among {topics}");
    let row = Row { number: 14, name, unit: Unit::Microseconds, goal: Some(5.0), times: SAMPLE as f64 };
    options.report(&row, || records.iter().map(|record| timed(|| apply(image, record))).sum());
    let name = format!("apply one change after the other to topics among {topics}");
    let row = Row { number: 14, name, unit: Unit::Microseconds, goal: Some(5.0), times: SAMPLE as f64 };
    options.report(&row, || {
        let mut newest = image.clone();
        records.iter().map(|record| timed(|| newest = apply(&newest, record))).sum()
    });
}

/// A broker of a zone is fenced: it leaves the ISR of its 10 000 partitions, in 6 667 of 100 000 topics.
fn outage(options: &Options, image: &MetadataImage, topics: usize) {
    let defaults = ElectionDefaults { node_id: 1, min_insync_replicas: 1, unclean_leader_election_enable: false };
    let fence = |image: &MetadataImage, broker| Elections::new(image, defaults).for_broker(BrokerEvent::Fenced, broker);
    let records = fence(image, 0);
    let concerned = Delta::between(image, &apply(image, &records)).changed_topics.len();
    let what = format!("{} changes in {concerned} topics of {topics}", records.len());
    let row = |name: &str, goal| Row {
        number: 14,
        name: format!("zone outage: {name}"),
        unit: Unit::Milliseconds,
        goal,
        times: 1.0,
    };

    let goal = (topics == 100_000).then_some(2.0);
    options.report(&row(&format!("apply {what}"), goal), || timed(|| apply(image, &records)));
    let name = "the same for ten brokers, one after the other, the mean";
    options.report(&Row { times: 10.0, ..row(name, goal) }, || {
        let mut newest = image.clone();
        let mut taken = Duration::ZERO;
        for broker in (0..30).step_by(3) {
            let records = fence(&newest, broker);
            taken += timed(|| newest = apply(&newest, &records));
        }
        taken
    });
    options.report(&row("elect the leaders", None), || timed(|| fence(image, 0)));
    let newer = apply(image, &records);
    options.report(&row("the delta", None), || timed(|| Delta::between(image, &newer)));
    options.report(&row("forget the image before", None), || {
        let newer = apply(image, &records);
        timed(|| drop(newer))
    });
}

fn snapshot(options: &Options, image: &MetadataImage) {
    let folder = std::env::temp_dir().join(format!("klamm-metadata-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("snapshot");
    let header = CheckpointHeader { epoch: 1, last_contained_log_timestamp: 1, control_records: Vec::new() };
    let write = || write_snapshot(Path::new(&path), image, &header, 1).expect("a snapshot");
    write();
    let partitions = options.partitions;
    let row = |name: String, goal: f64| {
        let goal = (partitions == 1_000_000).then_some(goal);
        Row { number: 13, name, unit: Unit::Seconds, goal, times: 1.0 }
    };
    let name = format!("load a snapshot of {partitions} partitions");
    options.report(&row(name, 0.25), || timed(|| load_snapshot(&path, 1, 1).expect("a snapshot")));
    let name = format!("write a snapshot of {partitions} partitions");
    options.report(&row(format!("{name}, processor time"), 0.4), || timed(write));
    options.report(&row(format!("{name}, until it is durable"), 0.4), || {
        let start = Instant::now();
        write();
        start.elapsed()
    });
    std::fs::remove_dir_all(&folder).expect("ours");
}
