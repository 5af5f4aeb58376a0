//! Invariant: no bytes make the record codec panic, loop, or allocate more than four times the input plus 64 KiB, and
//! decompressed records never exceed the limit. Whatever passes validation for a produce can be read by the iterator,
//! with the same records for every codec; whatever the iterator rejects, validation rejects too.

use klamm_records::control::ControlRecord;
use klamm_records::convert::{recompress, renumber};
use klamm_records::{
    Batch, Codec, Compression, HEADER_LEN, ProduceRules, Produced, RecordsError, batches, header, records,
    validate_produced,
};

/// Small, so that decompression bombs reach it.
const DECOMPRESSED_BYTES_MAX: usize = 256 * 1024;

/// Reads the bytes as they are, and again with a valid length and CRC, to reach the code after those checks.
pub fn batch(data: &[u8]) {
    crate::heap::bounded(data, DECOMPRESSED_BYTES_MAX, || read_all(data));
    check_produced(data);
    if let Some(mended) = mended(data) {
        crate::heap::bounded(data, DECOMPRESSED_BYTES_MAX, || read_all(&mended));
        check_produced(&mended);
    }
}

fn mended(data: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = data.to_vec();
    bytes.get(..HEADER_LEN)?;
    let length = i32::try_from(bytes.len() - 12).ok()?;
    bytes[0..8].copy_from_slice(&[0; 8]);
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[16] = 2;
    header::set_crc(&mut bytes);
    Some(bytes)
}

fn read_all(bytes: &[u8]) {
    let mut buffer = Vec::new();
    let mut iterator = batches(bytes);
    for batch in iterator.by_ref().flatten() {
        if batch.check().is_ok() {
            let _ = read_batch(batch, &mut buffer);
            assert!(buffer.capacity() <= DECOMPRESSED_BYTES_MAX + 1, "{} bytes", buffer.capacity());
        }
    }
    assert!(iterator.position() <= bytes.len());
}

/// A sum over all contents of the records, and their number.
fn read_batch(batch: Batch<'_>, buffer: &mut Vec<u8>) -> Result<(u64, usize), RecordsError> {
    let (mut sum, mut count) = (0u64, 0);
    for record in records(batch, buffer, DECOMPRESSED_BYTES_MAX)? {
        let record = record?;
        let headers = record.headers.map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len));
        let size = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        sum = sum.wrapping_add(record.timestamp as u64 ^ size as u64).wrapping_add(headers.sum::<usize>() as u64);
        count += 1;
        if batch.header().is_control() {
            let _ = ControlRecord::parse(record.key, record.value);
        }
    }
    Ok((sum, count))
}

fn check_produced(bytes: &[u8]) {
    let rules = ProduceRules {
        batch_bytes_max: usize::MAX,
        timestamp_after_max_ms: i64::MAX,
        decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
        ..ProduceRules::of_client(0)
    };
    let checked = crate::heap::bounded(bytes, DECOMPRESSED_BYTES_MAX, || validate_produced(bytes, &rules));
    match checked {
        Ok(produced) => check_taken(&produced),
        Err(error) => assert!(error.error_code() != 0 && !error.to_string().is_empty()),
    }
}

fn check_taken(produced: &Produced<'_>) {
    let batch = produced.batch;
    let mut buffer = Vec::new();
    batch.check().expect("a produced batch is a batch");
    let read = read_batch(batch, &mut buffer).expect("what was checked can be read");
    assert_eq!(read.1, produced.record_count as usize);
    for codec in [Codec::None, Codec::Lz4] {
        let again = recompress(batch, Compression::of(codec), DECOMPRESSED_BYTES_MAX).expect("it decompresses");
        let again = Batch::at_start_of(&again).expect("whole");
        assert_eq!(read_batch(again, &mut buffer), Ok(read), "{codec}");
    }
    // Timestamps that are too far apart for one base timestamp cannot be rewritten; and renumbering must not
    // overflow.
    if let Ok(numbered) = renumber(batch, Compression::NONE, DECOMPRESSED_BYTES_MAX) {
        let numbered = Batch::at_start_of(&numbered).expect("whole");
        assert_eq!(read_batch(numbered, &mut buffer), Ok(read));
    }
}
