//! Recovers facts about a damaged batch with the help of its checksum: where it ended, and how many offsets it had.
//!
//! The checksum does not cover length, base offset, leader epoch and magic. If it is right for some length, the batch
//! was written completely and only its length was changed, because a torn write does not match the checksum of all of
//! its bytes. If two counts contradict each other, the checksum shows which one is right.

use klamm_base::LogError;
use klamm_records::header::{HEADER_LEN, Header};

use super::files::OpenFile;

/// The first byte that the checksum covers.
pub(super) const CHECKED_FROM: u64 = 21;
/// Bound on trailing zeroes that may belong to the batch or to a prepared tail.
const ZEROES_MAX: u64 = 1 << 20;
/// Size of the smallest record.
const RECORD_BYTES_MIN: i64 = 7;
const CHUNK: usize = 64 << 10;

/// The end of the batch at `position` according to its checksum, without zeroes that may follow up to `end`; `None`
/// if no end matches.
pub fn end_by_checksum(file: &OpenFile, position: u64, end: u64) -> Result<Option<u64>, LogError> {
    let Some(header) = header_at(file, position, end)? else { return Ok(None) };
    let expected = Header::at_start_of(&header).expect("a whole header").crc();
    let (mut at, mut crc, mut last) = (position + CHECKED_FROM, 0, (position + CHECKED_FROM, 0));
    let mut chunk = vec![0; CHUNK];
    while at < end {
        let want = (end - at).min(CHUNK as u64) as usize;
        let read = file.read_up_to(&mut chunk[..want], at)?;
        if read == 0 {
            break;
        }
        if let Some(nonzero) = chunk[..read].iter().rposition(|&byte| byte != 0) {
            last = (at + nonzero as u64 + 1, crc32c::crc32c_append(crc, &chunk[..=nonzero]));
        }
        crc = crc32c::crc32c_append(crc, &chunk[..read]);
        at += read as u64;
    }
    let (mut at, mut crc) = last;
    let most = at.saturating_add(ZEROES_MAX).min(end);
    loop {
        if crc == expected && at >= position + HEADER_LEN as u64 {
            return Ok(Some(at));
        }
        if at >= most {
            return Ok(None);
        }
        (at, crc) = (at + 1, crc32c::crc32c_append(crc, &[0]));
    }
}

/// The number of offsets that the damaged batch in `[position, end)` had, or an upper bound, so that none is assigned
/// again; `None` if the batch does not show it.
pub fn claimed_offsets(file: &OpenFile, position: u64, end: u64) -> Result<Option<i64>, LogError> {
    let Some(bytes) = header_at(file, position, end)? else { return Ok(None) };
    let header = Header::at_start_of(&bytes).expect("a whole header");
    let count = i64::from(header.record_count());
    let by_delta = i64::from(header.last_offset_delta()) + 1;
    if count == by_delta {
        return Ok((count > 0).then_some(count));
    }
    for claimed in [count, by_delta] {
        let Some(right) = i32::try_from(claimed).ok().filter(|&claimed| claimed > 0) else { continue };
        let mut mended = bytes;
        mended[23..27].copy_from_slice(&(right - 1).to_be_bytes());
        mended[57..61].copy_from_slice(&right.to_be_bytes());
        if crc_with(file, position, end, &mended)? == header.crc() {
            return Ok(Some(claimed));
        }
    }
    // Uncompressed records cannot be more than this.
    let most = (end - position - HEADER_LEN as u64) as i64 / RECORD_BYTES_MIN;
    let is_possible = |claimed: &i64| *claimed > 0 && (header.compression_id() != 0 || *claimed <= most);
    Ok([count, by_delta].into_iter().filter(is_possible).max())
}

/// The header at `position`; `None` if there is none or if it was erased.
fn header_at(file: &OpenFile, position: u64, end: u64) -> Result<Option<[u8; HEADER_LEN]>, LogError> {
    let mut header = [0; HEADER_LEN];
    let is_whole = position + HEADER_LEN as u64 <= end && file.read_up_to(&mut header, position)? == HEADER_LEN;
    Ok(Some(header).filter(|header| is_whole && header.iter().any(|&byte| byte != 0)))
}

/// The checksum of `[position, end)` with a different header.
fn crc_with(file: &OpenFile, position: u64, end: u64, header: &[u8; HEADER_LEN]) -> Result<u32, LogError> {
    let mut crc = crc32c::crc32c(&header[CHECKED_FROM as usize..]);
    let (mut at, mut chunk) = (position + HEADER_LEN as u64, vec![0; CHUNK]);
    while at < end {
        let want = (end - at).min(CHUNK as u64) as usize;
        let read = file.read_up_to(&mut chunk[..want], at)?;
        if read == 0 {
            break;
        }
        crc = crc32c::crc32c_append(crc, &chunk[..read]);
        at += read as u64;
    }
    Ok(crc)
}
