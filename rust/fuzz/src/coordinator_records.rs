//! Invariant: no record of `__consumer_offsets` makes its reading panic, loop, or allocate more than four times the record plus 64
//! KiB; an offset that was read is written as it was; and of the records of a load the last of each key remains.

use std::collections::BTreeMap;

use klamm_records::{Entry, LatestRecord, LatestRecords};
use klamm_wire::offset_record::{OffsetKey, OffsetRecord, StoredOffset, key, read};

use crate::input::Input;

/// The expiry time that is not written.
const NO_EXPIRY: i64 = -1;

/// Reads the bytes as one record, and as the records of a load. Each begins with the length of its key.
pub fn coordinator_records(data: &[u8]) {
    let Some((split, record)) = data.split_first() else { return };
    let (key, value) = record.split_at(usize::from(*split).min(record.len()));
    for value in [Some(value), None] {
        let found = crate::heap::bounded(data, 0, || read(key, value));
        if let Ok(Some((place, offset))) = found {
            written_as_read(&place, offset.as_ref());
        }
    }
    load(data);
}

fn written_as_read(place: &OffsetKey<'_>, offset: Option<&StoredOffset<'_>>) {
    // Replaced characters may make a text longer than a record allows.
    let Ok(key) = key(&place.group_id, &place.topic, place.partition) else { return };
    let record = offset.map(|offset| OffsetRecord {
        offset: offset.offset,
        leader_epoch: offset.leader_epoch,
        metadata: &offset.metadata,
        commit_timestamp_ms: offset.commit_timestamp_ms,
        expire_timestamp_ms: offset.expire_timestamp_ms,
        topic_id: offset.topic_id,
    });
    let Ok(value) = record.map(|record| record.value()).transpose() else { return };
    let again = read(&key, value.as_deref()).expect("what was written can be read").expect("an offset");
    assert_eq!((&again.0, again.1.as_ref()), (place, offset));
    assert!(offset.is_none_or(|offset| offset.expire_timestamp_ms == NO_EXPIRY || offset.leader_epoch == -1));
}

fn load(data: &[u8]) {
    let mut input = Input::new(data);
    let (mut latest, mut expected) = (LatestRecords::default(), BTreeMap::new());
    let mut offset = 0;
    while !input.is_empty() {
        let lengths = input.byte();
        let key = input.bytes(usize::from(lengths & 3));
        let value = (lengths & 0x80 == 0).then(|| input.bytes(usize::from(lengths >> 2 & 7)));
        match lengths & 0x60 {
            0x60 => latest.keep(offset, offset, key.len()),
            _ => latest.add(&[(offset, key, value)]),
        }
        let kept = (lengths & 0x60 == 0x60).then_some(offset);
        expected.retain(|_, (known, _, is_kept): &mut (&[u8], _, bool)| kept.is_some() || *is_kept || *known != key);
        expected.insert(offset, (key, value.map(<[u8]>::to_vec), kept.is_some()));
        offset += 1;
        if offset > 200 {
            break;
        }
    }
    let held: Vec<Entry<i64>> = latest.into_entries().collect();
    let wanted = expected.into_iter().map(|(offset, (key, value, is_kept))| match is_kept {
        true => Entry::Kept(offset),
        false => Entry::Latest(LatestRecord::new(offset, key, value.as_deref())),
    });
    assert_eq!(held, wanted.collect::<Vec<_>>());
}
