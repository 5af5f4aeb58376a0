//! Parts of the records of groups of the new protocols in `__consumer_offsets`, as Apache Kafka 4.3 writes them: those of
//! which a new target writes one for each member.

use std::collections::BTreeMap;

use klamm_base::Uuid;
use klamm_base::primitives::Writer;

use crate::offset_record::{TooLarge, put_string};

/// The key of a record: its type, and the ids of the group and perhaps of a member, or a pattern.
pub fn key<'a>(record_type: i16, names: impl IntoIterator<Item = &'a str>) -> Result<Vec<u8>, TooLarge> {
    let mut out = record_type.to_be_bytes().to_vec();
    names.into_iter().try_for_each(|name| put_string(&mut out, name))?;
    Ok(out)
}

/// The value with the target of a member (`ConsumerGroupTargetAssignmentMemberValue` and its like): partitions by topic,
/// in version 0.
pub fn target_value(target: &BTreeMap<Uuid, Vec<i32>>) -> Vec<u8> {
    let mut out = Writer::with_capacity(64);
    out.i16(0);
    out.unsigned_varint(target.len() as u32 + 1);
    for (topic, partitions) in target {
        out.uuid(*topic);
        out.unsigned_varint(partitions.len() as u32 + 1);
        partitions.iter().for_each(|partition| out.i32(*partition));
        out.unsigned_varint(0);
    }
    out.unsigned_varint(0);
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_targets_are_apache_kafkas() {
        assert_eq!(key(7, ["g", "m1"]).expect("short"), b"\0\x07\0\x01g\0\x02m1");
        assert!(key(7, ["g", &"m".repeat(1 << 15)]).is_err());
        assert_eq!(target_value(&BTreeMap::new()), b"\0\0\x01\0");
        let target = BTreeMap::from([(Uuid([2; 16]), vec![1, 2]), (Uuid([1; 16]), vec![0x1_0000])]);
        let topic = |id: u8, rest: &[u8]| [&[id; 16], rest].concat();
        let first = topic(1, b"\x02\0\x01\0\0\0");
        let second = topic(2, b"\x03\0\0\0\x01\0\0\0\x02\0");
        assert_eq!(target_value(&target), [&b"\0\0\x03"[..], &first, &second, b"\0"].concat());
    }
}
