//! Finds the end of the only batch in a Produce request's bytes for one partition.

use klamm_base::ErrorCode;
use klamm_records::header::{HEADER_LEN, Header, LENGTH_PREFIX};

/// Codec number of zstd in a batch's attributes.
const ZSTD: i16 = 4;
/// First version that may carry zstd (KIP-110).
const ZSTD_VERSION: i16 = 7;
/// Bytes up to and including the magic number: with fewer bytes the format is not known.
const MAGIC_END: usize = 17;
/// The smallest valid length for any magic number.
const LENGTH_MIN: i32 = 14;
/// From this length on, the size of the batch overflows in Apache Kafka, which returns UNKNOWN_SERVER_ERROR.
const LENGTH_MAX: i32 = i32::MAX - LENGTH_PREFIX as i32;

/// Length of the batch at the start of `bytes`.
///
/// As in Apache Kafka, an incomplete batch is not a batch, and an incomplete one after a complete one is ignored; no
/// batch, or more than one, is an error. The log validates the contents of the batch.
pub fn only_batch_len(bytes: &[u8], version: i16) -> Result<usize, ErrorCode> {
    let (header, len) = first_batch(bytes)?.ok_or(ErrorCode::INVALID_RECORD)?;
    if version < ZSTD_VERSION && header.compression_id() == ZSTD {
        return Err(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
    }
    match next_len(&bytes[len..])? {
        None => Ok(len),
        Some(_) => Err(ErrorCode::INVALID_RECORD),
    }
}

/// The batch at the start of `bytes` if it is complete and has this format: its header and length. An error if the
/// bytes have no known format.
pub fn first_batch(bytes: &[u8]) -> Result<Option<(Header<'_>, usize)>, ErrorCode> {
    let Some(len) = next_len(bytes)?.filter(|&len| len >= HEADER_LEN) else { return Ok(None) };
    Ok(Header::at_start_of(bytes).filter(|header| header.magic() == 2).map(|header| (header, len)))
}

/// Length of the next complete batch with any magic number.
fn next_len(bytes: &[u8]) -> Result<Option<usize>, ErrorCode> {
    let Some(length) = bytes.get(8..LENGTH_PREFIX).and_then(|field| field.first_chunk()) else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    if length < LENGTH_MIN {
        return Err(ErrorCode::CORRUPT_MESSAGE);
    }
    match bytes.get(MAGIC_END - 1) {
        None => Ok(None),
        Some(3..) => Err(ErrorCode::CORRUPT_MESSAGE),
        Some(_) if length > LENGTH_MAX => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
        Some(_) => Ok(Some(LENGTH_PREFIX + length as usize).filter(|&len| len <= bytes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::batch;

    #[test]
    fn exactly_one_complete_batch() {
        let one = batch(1, 10);
        let with = |at: usize, value: u8| {
            let mut changed = one.clone();
            changed[at] = value;
            changed
        };
        let none = Err(ErrorCode::INVALID_RECORD);
        let corrupt = Err(ErrorCode::CORRUPT_MESSAGE);
        let rest = |rest: &[u8]| [&one[..], rest].concat();
        for (bytes, version, expected) in [
            (one.clone(), 9, Ok(71)),
            (vec![], 9, none),
            (one[..5].to_vec(), 9, none),
            (one[..70].to_vec(), 9, none),
            (rest(b"12345"), 9, Ok(71)),
            (rest(&one[..70]), 9, Ok(71)),
            (rest(&one), 9, none),
            (rest(&[0; 12]), 9, corrupt),
            (with(16, 1), 9, none),
            (with(16, 3), 9, corrupt),
            (with(16, 0xff), 9, corrupt),
            (with(11, 13), 9, corrupt),
            (with(11, 20), 9, none),
            (with(8, 0x80), 9, corrupt),
            ([&one[..8], &i32::MAX.to_be_bytes(), &one[12..]].concat(), 9, Err(ErrorCode::UNKNOWN_SERVER_ERROR)),
            (with(22, 4), 6, Err(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE)),
            (with(22, 4), 7, Ok(71)),
        ] {
            assert_eq!(only_batch_len(&bytes, version), expected, "{bytes:?}");
        }
    }
}
