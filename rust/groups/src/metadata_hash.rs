//! The metadata hash of a group, a detector of changed topics (Apache Kafka's `Utils.computeTopicHash` and
//! `computeGroupHash`).
//!
//! XXH3-64 over little-endian numbers and strings. A string is its UTF-16 units followed by their number, as hash4j
//! writes it.
use klamm_metadata::MetadataImage;
use klamm_metadata::topic::Topic;
use twox_hash::XxHash3_64;

use crate::range::compare_as_java;

const MAGIC: u8 = 0;

/// The hash of a topic: its id, its name, its partitions and the racks of their replicas. `None`: no such topic.
pub fn topic_hash(image: &MetadataImage, name: &str) -> Option<i64> {
    let topic = image.topics().by_name(name)?;
    let count = topic.partition_count();
    let mut hashed = Vec::with_capacity(64 + 2 * name.len() + count * 16);
    hashed.push(MAGIC);
    let id = u128::from_be_bytes(topic.id().0);
    hashed.extend(((id >> 64) as u64).to_le_bytes());
    hashed.extend((id as u64).to_le_bytes());
    put_string(&mut hashed, name);
    hashed.extend((count as i32).to_le_bytes());
    for index in 0..count as i32 {
        hashed.extend(index.to_le_bytes());
        for rack in racks(image, topic, index) {
            hashed.extend(units(rack).to_le_bytes());
            put_string(&mut hashed, rack);
        }
    }
    Some(XxHash3_64::oneshot(&hashed) as i64)
}

/// The hash of a group from its topics' names and hashes; 0 without topics.
pub fn group_hash(mut topics: Vec<(String, i64)>) -> i64 {
    if topics.is_empty() {
        return 0;
    }
    topics.sort_by(|(left, _), (right, _)| compare_as_java(left, right));
    let hashed: Vec<u8> = topics.iter().flat_map(|(_, hash)| hash.to_le_bytes()).collect();
    XxHash3_64::oneshot(&hashed) as i64
}

/// The racks of a partition's replicas, sorted; a rack with two replicas is there twice.
fn racks<'a>(image: &'a MetadataImage, topic: &Topic, index: i32) -> Vec<&'a str> {
    let replicas = topic.partition(index).map(|partition| partition.replicas()).unwrap_or_default();
    let rack = |id: &i32| image.brokers().get(id)?.rack.as_deref();
    let mut racks: Vec<&str> = replicas.iter().filter_map(rack).collect();
    racks.sort_by(|left, right| compare_as_java(left, right));
    racks
}

fn units(text: &str) -> i32 {
    text.encode_utf16().count() as i32
}

fn put_string(hashed: &mut Vec<u8>, text: &str) {
    hashed.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    hashed.extend(units(text).to_le_bytes());
}
