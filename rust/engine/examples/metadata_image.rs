//! Measures the metadata image: goals 13, 14 and the metadata work of goal 17. `metadata_image [TOPICS] [PARTITIONS EACH]
//! [MEASURES WITH THIS IN THEIR NAME] [ROUNDS]`.
//!
//! One line a measure: name and processor time, best of the rounds. Run it in release.
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use klamm_engine::Uuid;
use klamm_engine::metadata::MetadataImage;
use klamm_engine::metadata::checkpoint::{CheckpointHeader, load_snapshot, write_snapshot};
use klamm_engine::metadata::creation::topic_records;
use klamm_engine::metadata::delta::Delta;
use klamm_engine::metadata::elections::{BrokerEvent, ElectionDefaults, Elections};
use klamm_engine::metadata::placement::Placer;
use klamm_engine::metadata::records::{
    BrokerEndpoint, FeatureLevelRecord, PartitionChangeRecord, Record, RegisterBrokerRecord,
};
use klamm_engine::metadata::version::MetadataVersion;

const BROKERS: i32 = 100;
const RACKS: [&str; 3] = ["a", "b", "c"];

fn main() {
    let mut arguments = std::env::args().skip(1).take(2).map(|text| text.parse().expect("a number"));
    let topics: usize = arguments.next().unwrap_or(100_000);
    let partitions: usize = arguments.next().unwrap_or(10);
    let image = cluster(topics, partitions);
    println!("{topics} topics, {} partitions, {BROKERS} brokers", topics * partitions);
    println!("resident {} MB", resident_mb());
    snapshots(&image);
    one_topic(&image, topics);
    one_broker(&image);
    one_change(&image, topics);
}

/// Resident memory of this process in MB, 0 where there is no procfs.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096 / 1_000_000
}

fn report(what: &str, mut work: impl FnMut() -> Duration) {
    if !std::env::args().nth(3).is_none_or(|wanted| what.contains(&wanted)) {
        return;
    }
    let rounds = std::env::args().nth(4).map_or(7, |rounds| rounds.parse().expect("a number"));
    let best = (0..rounds).map(|_| work()).min().expect("rounds");
    println!("{what:48} {:>12.1} us", best.as_secs_f64() * 1e6);
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = processor_time();
    let result = work();
    let taken = processor_time() - start;
    drop(black_box(result));
    taken
}

/// Time that this thread was on a processor: what others run beside it does not count.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec that the call may write to.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0, "the clock exists");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn topic_id(index: usize) -> Uuid {
    let mixed = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Uuid((u128::from(mixed) << 64 | u128::from(mixed.rotate_left(31))).to_be_bytes())
}

fn encoded<'r>(record: impl Into<Record<'r>>) -> Vec<u8> {
    let record = record.into();
    record.encode(record.version_at(MetadataVersion::LATEST)).expect("a record")
}

fn apply(image: &MetadataImage, records: &[Vec<u8>]) -> MetadataImage {
    image.apply(records.iter().map(Vec::as_slice)).expect("valid records")
}

fn cluster(topics: usize, partitions: usize) -> MetadataImage {
    let mut records = vec![encoded(FeatureLevelRecord { name: "metadata.version", feature_level: 30 })];
    records.extend((0..BROKERS).map(|id| {
        let end_points = [BrokerEndpoint { name: "PLAINTEXT", host: "host", port: 9092, security_protocol: 0 }];
        encoded(RegisterBrokerRecord {
            broker_id: id,
            end_points: end_points.as_slice().into(),
            rack: Some(RACKS[id as usize % 3]),
            fenced: false,
            log_dirs: [Uuid([id as u8 + 3; 16])].as_slice().into(),
            ..RegisterBrokerRecord::default()
        })
    }));
    let mut image = apply(&MetadataImage::default(), &records);
    let mut placer = Placer::new(&image, 7);
    for start in (0..topics).step_by(1000) {
        let mut records = Vec::new();
        for index in start..topics.min(start + 1000) {
            let assignments = placer.place(partitions, 3).expect("enough brokers");
            let name = format!("topic-of-some-length-{index}");
            records.extend(topic_records(&image, &name, topic_id(index), &[], &assignments).expect("active brokers"));
        }
        image = apply(&image, &records);
    }
    image
}

fn snapshots(image: &MetadataImage) {
    let folder = std::env::temp_dir().join(format!("klamm-metadata-image-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("snapshot");
    let header = CheckpointHeader { epoch: 1, last_contained_log_timestamp: 1, control_records: Vec::new() };
    write_snapshot(Path::new(&path), image, &header, 1).expect("a snapshot");
    report("write the snapshot, fsync included", || {
        timed(|| write_snapshot(Path::new(&path), image, &header, 1).expect("a snapshot"))
    });
    println!("{:48} {:>12} MB", "its size", std::fs::metadata(&path).expect("the file").len() / 1_000_000);
    report("load the snapshot", || timed(|| load_snapshot(&path, 1, 1).expect("a snapshot")));
    std::fs::remove_dir_all(&folder).expect("ours");
}

fn one_topic(image: &MetadataImage, topics: usize) {
    let assignments = Placer::new(image, 7).place(10, 3).expect("enough brokers");
    let records = topic_records(image, "new", topic_id(topics + 1), &[], &assignments).expect("active brokers");
    report("create a topic of 10 partitions", || timed(|| apply(image, &records)));
}

fn one_change(image: &MetadataImage, topics: usize) {
    let change = |index: usize| {
        let isr = [1, 2];
        let topic_id = topic_id(index);
        let isr = Some(isr.as_slice().into());
        encoded(PartitionChangeRecord { topic_id, partition_id: 0, isr, ..PartitionChangeRecord::default() })
    };
    report("change one partition (mean of 1000 topics)", || {
        let records: Vec<Vec<Vec<u8>>> = (0..1000).map(|index| vec![change(index * 7919 % topics)]).collect();
        let taken: Duration = records.iter().map(|record| timed(|| apply(image, record))).sum();
        taken / 1000
    });
    let newer = apply(image, &[change(topics / 2)]);
    report("the delta of one partition", || timed(|| Delta::between(image, &newer)));
    // The published benchmark of a zone outage: 10 000 replicas of a broker in 6 667 topics of 100 000.
    let outage: Vec<Vec<u8>> = (0..topics).step_by(15).map(change).collect();
    let look_up = |index: usize| image.topics().by_id(topic_id(index)).and_then(|topic| topic.partition(0));
    report(&format!("only look up a partition in each of {} topics", outage.len()), || {
        timed(|| {
            (0..topics).step_by(15).filter_map(look_up).map(|partition| i64::from(partition.leader())).sum::<i64>()
        })
    });
    report(&format!("change a partition in each of {} topics", outage.len()), || timed(|| apply(image, &outage)));
}

fn one_broker(image: &MetadataImage) {
    let defaults = ElectionDefaults { node_id: 1, min_insync_replicas: 1, unclean_leader_election_enable: false };
    let elect = || Elections::new(image, defaults).for_broker(BrokerEvent::Fenced, 5);
    let records = elect();
    report(&format!("elect for {} partitions of a broker", records.len()), || timed(elect));
    report("apply their records", || timed(|| apply(image, &records)));
    let newer = apply(image, &records);
    report("their delta", || timed(|| Delta::between(image, &newer)));
}
