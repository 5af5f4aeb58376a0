use bytes::Bytes;
use klamm_records::control::end_transaction_marker;
use klamm_records::{BatchBuilder, BatchFields, Codec, Compression, RecordsError, records};

use super::slice::{Slice, Watermarks};

const WATERMARKS: Watermarks = Watermarks { high_watermark: 99, last_stable_offset: 99, log_start_offset: 0 };

fn batch(base_offset: i64, count: i64, producer_id: i64, compression: Compression) -> Vec<u8> {
    let transactional = producer_id >= 0;
    let fields = BatchFields { base_offset, producer_id, producer_epoch: 0, transactional, ..BatchFields::default() };
    let mut builder = BatchBuilder::new(fields, compression);
    for offset in base_offset..base_offset + count {
        builder.append(0, None, Some(offset.to_string().as_bytes()), &[]).expect("fits");
    }
    builder.finish().expect("fits")
}

fn plain(base_offset: i64, count: i64) -> Vec<u8> {
    batch(base_offset, count, -1, Compression::NONE)
}

fn marker(offset: i64, producer_id: i64, commit: bool) -> Vec<u8> {
    let mut marker = end_transaction_marker(producer_id, 0, 0, commit, 0).expect("fits");
    klamm_records::header::set_position(&mut marker, offset, 0);
    marker
}

fn slice(parts: &[Vec<u8>], start: i64, end: i64, aborted: &[(i64, i64)]) -> Slice {
    Slice::new(Bytes::from(parts.concat()), start, end, aborted.to_vec(), 1 << 20, WATERMARKS)
}

/// The offsets that a reader sees, and where it continues.
fn read(mut slice: Slice) -> Result<(Vec<i64>, i64), RecordsError> {
    let bytes = slice.bytes();
    let (mut seen, mut window) = (Vec::new(), Vec::new());
    while let Some(data) = slice.next_batch(&bytes)? {
        for record in records(data.batch, &mut window, slice.decompressed_bytes_max())? {
            let offset = record?.offset;
            if (data.first..data.end).contains(&offset) {
                seen.push(offset);
            }
        }
        slice.passed(data.batch);
    }
    Ok((seen, slice.next_offset()))
}

#[test]
fn a_range_begins_and_ends_within_batches() {
    let parts = [plain(0, 5), plain(5, 5), plain(10, 5)];
    assert_eq!(read(slice(&parts, 3, 12, &[])), Ok((vec![3, 4, 5, 6, 7, 8, 9, 10, 11], 12)));
    assert_eq!(read(slice(&parts, 5, 5, &[])), Ok((vec![], 5)));
    assert_eq!(read(slice(&parts, 0, 99, &[])), Ok(((0..15).collect(), 15)));
}

#[test]
fn gaps_are_skipped() {
    assert_eq!(read(slice(&[plain(0, 2), plain(40, 2)], 0, 30, &[])), Ok((vec![0, 1], 30)));
    assert_eq!(read(slice(&[plain(40, 2)], 10, 20, &[])), Ok((vec![], 20)));
    assert_eq!(read(slice(&[plain(40, 2)], 10, 99, &[])), Ok((vec![40, 41], 42)));
}

#[test]
fn a_truncated_batch_is_left_for_the_next_fetch() {
    let mut bytes = [plain(0, 2), plain(2, 2)].concat();
    bytes.truncate(bytes.len() - 1);
    assert_eq!(read(slice(&[bytes], 0, 99, &[])), Ok((vec![0, 1], 2)));
    assert_eq!(read(slice(&[], 7, 99, &[])), Ok((vec![], 7)));
}

#[test]
fn aborted_transactions_are_skipped_from_their_first_offset_to_their_marker() {
    let of = |base_offset, producer_id| batch(base_offset, 2, producer_id, Compression::NONE);
    let parts = [
        of(0, 1),
        of(2, 2),
        plain(4, 2),
        marker(6, 1, false),
        of(7, 1),
        marker(9, 2, true),
        marker(10, 1, true),
        of(11, 2),
        marker(13, 2, false),
        of(14, 2),
    ];
    let aborted = [(2, 11), (1, 0)];
    assert_eq!(read(slice(&parts, 0, 99, &aborted)), Ok((vec![2, 3, 4, 5, 7, 8, 14, 15], 16)));
    assert_eq!(read(slice(&parts, 0, 99, &[])).map(|(seen, _)| seen.len()), Ok(12), "markers are not data");
}

#[test]
fn damage_is_an_error_at_its_position() {
    let mut damaged = plain(2, 2);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let mut slice = slice(&[plain(0, 2), damaged], 0, 99, &[]);
    let bytes = slice.bytes();
    let first = slice.next_batch(&bytes).expect("whole").expect("there").batch;
    slice.passed(first);
    assert!(matches!(slice.next_batch(&bytes), Err(RecordsError::BadCrc { .. })));
    assert_eq!(slice.next_offset(), 2);
}

#[test]
fn a_bomb_is_refused() {
    let mut builder = BatchBuilder::new(BatchFields::default(), Compression::of(Codec::Zstd));
    builder.append(0, None, Some(&vec![0; 4 << 20]), &[]).expect("fits");
    let bomb = builder.finish().expect("fits");
    assert!(bomb.len() < 4096);
    assert_eq!(read(slice(&[bomb], 0, 99, &[])), Err(RecordsError::DecompressedTooLarge { max: 1 << 20 }));
}
