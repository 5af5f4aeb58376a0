//! The snapshot file that preserves the producers across a restart (`ProducerStateManager`'s format).
//!
//! int16 version 1, CRC-32C of the rest, int32 count, and 46 bytes for each producer. Only its last batch is
//! included.

use super::entry::{Batch, Entry};

const VERSION: i16 = 1;
const HEADER_SIZE: usize = 10;
const CHECKED_FROM: usize = 6;
const ENTRY_SIZE: usize = 46;

/// The content of a snapshot file.
pub fn encode(producers: &[(i64, Entry)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_SIZE + ENTRY_SIZE * producers.len());
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(producers.len() as i32).to_be_bytes());
    for (producer_id, entry) in producers {
        let last = entry.last_batch();
        out.extend_from_slice(&producer_id.to_be_bytes());
        out.extend_from_slice(&entry.producer_epoch.to_be_bytes());
        out.extend_from_slice(&entry.last_sequence().to_be_bytes());
        out.extend_from_slice(&last.map_or(-1, |batch| batch.last_offset).to_be_bytes());
        out.extend_from_slice(&last.map_or(0, |batch| batch.offset_delta).to_be_bytes());
        out.extend_from_slice(&entry.last_timestamp.to_be_bytes());
        out.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
        out.extend_from_slice(&entry.txn_first_offset.to_be_bytes());
    }
    let crc = crc32c::crc32c(&out[CHECKED_FROM..]);
    out[2..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
    out
}

/// Takes fixed-size numbers from the front of an entry.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (number, rest) = self.0.split_first_chunk().expect("the entry's size was checked");
        self.0 = rest;
        *number
    }

    fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take())
    }

    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take())
    }

    fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take())
    }
}

fn decode_entry(bytes: &[u8]) -> (i64, Entry) {
    let mut numbers = Numbers(bytes);
    let producer_id = numbers.i64();
    let mut entry = Entry::UNKNOWN;
    entry.producer_epoch = numbers.i16();
    let (last_sequence, last_offset, offset_delta) = (numbers.i32(), numbers.i64(), numbers.i32());
    entry.last_timestamp = numbers.i64();
    entry.coordinator_epoch = numbers.i32();
    entry.txn_first_offset = numbers.i64().max(-1);
    if last_offset >= 0 {
        entry.push(Batch { last_sequence, last_offset, offset_delta, timestamp: entry.last_timestamp });
    }
    (producer_id, entry)
}

/// Parses a snapshot file; the error describes what is wrong.
pub fn decode(bytes: &[u8]) -> Result<Vec<(i64, Entry)>, String> {
    let Some((header, entries)) = bytes.split_first_chunk::<HEADER_SIZE>() else {
        return Err(format!("{} bytes", bytes.len()));
    };
    let version = i16::from_be_bytes([header[0], header[1]]);
    if version != VERSION {
        return Err(format!("version {version}, expected {VERSION}"));
    }
    let stored = u32::from_be_bytes([header[2], header[3], header[4], header[5]]);
    let computed = crc32c::crc32c(&bytes[CHECKED_FROM..]);
    if stored != computed {
        return Err(format!("checksum {stored:#010x}, its bytes give {computed:#010x}"));
    }
    let count = i32::from_be_bytes([header[6], header[7], header[8], header[9]]);
    let expected = usize::try_from(count).ok().and_then(|count| count.checked_mul(ENTRY_SIZE));
    if expected != Some(entries.len()) {
        return Err(format!("{count} producers in {} bytes", entries.len()));
    }
    Ok(entries.chunks_exact(ENTRY_SIZE).map(decode_entry).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn producer() -> impl Strategy<Value = (i64, Entry)> {
        let numbers = (0..i64::MAX, 0..i16::MAX, 0..i32::MAX, 0..i64::MAX, 0..i32::MAX, any::<i64>(), any::<i32>());
        (numbers, any::<bool>(), -1..i64::MAX).prop_map(|(numbers, with_batch, txn_first_offset)| {
            let (id, producer_epoch, last_sequence, last_offset, offset_delta, last_timestamp, coordinator_epoch) =
                numbers;
            let mut entry = Entry::UNKNOWN;
            entry.producer_epoch = producer_epoch;
            entry.coordinator_epoch = coordinator_epoch;
            entry.last_timestamp = last_timestamp;
            entry.txn_first_offset = txn_first_offset;
            if with_batch {
                entry.push(Batch { last_sequence, last_offset, offset_delta, timestamp: last_timestamp });
            }
            (id, entry)
        })
    }

    proptest! {
        #[test]
        fn producers_round_trip(producers in proptest::collection::vec(producer(), 0..20)) {
            prop_assert_eq!(decode(&encode(&producers)), Ok(producers));
        }

        #[test]
        fn a_flipped_bit_is_refused(producers in proptest::collection::vec(producer(), 0..5), at in any::<prop::sample::Index>()) {
            let mut bytes = encode(&producers);
            let bit = at.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn the_empty_snapshot_is_kafkas() {
        let bytes = encode(&[]);
        assert_eq!(bytes.len(), 10);
        assert_eq!(&bytes[..2], [0, 1]);
        assert_eq!(bytes[2..6], crc32c::crc32c(&[0, 0, 0, 0]).to_be_bytes());
    }
}
