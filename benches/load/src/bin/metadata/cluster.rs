//! The image of a cluster, created from records.
use klamm_base::Uuid;
use klamm_metadata::MetadataImage;
use klamm_metadata::creation::topic_records;
use klamm_metadata::records::{BrokerEndpoint, FeatureLevelRecord, Record, RegisterBrokerRecord};
use klamm_metadata::version::MetadataVersion;

pub const PARTITIONS_OF_A_TOPIC: usize = 10;
const REPLICAS: usize = 3;
const REPLICAS_OF_A_BROKER: usize = 10_000;
const RACKS: [&str; 3] = ["a", "b", "c"];
/// The number of topics whose records are one batch.
const BATCH_TOPICS: usize = 1000;

/// The id of the topic with this number.
pub fn topic_id(index: usize) -> Uuid {
    let mixed = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Uuid((u128::from(mixed) << 64 | u128::from(mixed.rotate_left(31))).to_be_bytes())
}

/// A record in the newest version.
pub fn encoded<'r>(record: impl Into<Record<'r>>) -> Vec<u8> {
    let record = record.into();
    record.encode(record.version_at(MetadataVersion::LATEST)).expect("a record")
}

/// The image with more records.
pub fn apply(image: &MetadataImage, records: &[Vec<u8>]) -> MetadataImage {
    image.apply(records.iter().map(Vec::as_slice)).expect("valid records")
}

/// The records of a new topic; replicas as in [`cluster`].
pub fn topic(image: &MetadataImage, index: usize, partitions: usize) -> Vec<Vec<u8>> {
    let brokers = image.brokers().len();
    let replicas = |leader: usize| (0..REPLICAS).map(|at| ((leader + at) % brokers) as i32).collect();
    let first = index * partitions;
    let assignments: Vec<Vec<i32>> = (first..first + partitions).map(replicas).collect();
    let name = format!("topic-of-some-length-{index}");
    topic_records(image, &name, topic_id(index), &[], &assignments).expect("active brokers")
}

/// A cluster of this many topics. Leaders rotate over all brokers; the replicas of a partition are on three
/// consecutive ones.
pub fn cluster(topics: usize) -> MetadataImage {
    let replicas = topics * PARTITIONS_OF_A_TOPIC * REPLICAS;
    let brokers = (replicas / REPLICAS_OF_A_BROKER).max(REPLICAS);
    let mut records = vec![encoded(FeatureLevelRecord { name: "metadata.version", feature_level: 30 })];
    records.extend((0..brokers).map(|id| broker(id as i32)));
    let mut image = apply(&MetadataImage::default(), &records);
    for start in (0..topics).step_by(BATCH_TOPICS) {
        let batch = start..topics.min(start + BATCH_TOPICS);
        let records: Vec<Vec<u8>> = batch.flat_map(|index| topic(&image, index, PARTITIONS_OF_A_TOPIC)).collect();
        image = apply(&image, &records);
    }
    image
}

fn broker(id: i32) -> Vec<u8> {
    let end_points = [BrokerEndpoint { name: "PLAINTEXT", host: "host", port: 9092, security_protocol: 0 }];
    let directory = Uuid((0xd1_u128 << 64 | id as u128).to_be_bytes());
    encoded(RegisterBrokerRecord {
        broker_id: id,
        end_points: end_points.as_slice().into(),
        rack: Some(RACKS[id as usize % RACKS.len()]),
        fenced: false,
        log_dirs: [directory].as_slice().into(),
        ..RegisterBrokerRecord::default()
    })
}
