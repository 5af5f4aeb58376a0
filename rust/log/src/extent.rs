//! What a damaged header still tells of its batch, proven by the checksum: where the batch ended, and how many offsets it had.
//!
//! The checksum covers neither length nor base offset, leader epoch and magic. So it shows that a batch is whole whose length
//! was changed: no write that was torn has the checksum of all of its bytes. And of two counts that contradict each other
//! it shows the right one.

use klamm_base::LogError;
use klamm_records::header::{HEADER_LEN, Header};

use super::files::OpenFile;

/// Where the bytes begin that the checksum covers.
const CHECKED_FROM: u64 = 21;
/// A batch may end with so many zeroes that nothing tells from those that were prepared.
const ZEROES_MAX: u64 = 1 << 20;
/// The smallest record.
const RECORD_BYTES_MIN: i64 = 7;
const CHUNK: usize = 64 << 10;

/// Where the batch at `position` ends by its checksum, zeroes that may follow it up to `end` aside; `None` when no end fits.
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

/// How many offsets the damaged batch in `[position, end)` had, or more, so that none is given again; `None` when it does
/// not tell.
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
    // Records that are not compressed cannot be more than this.
    let most = (end - position - HEADER_LEN as u64) as i64 / RECORD_BYTES_MIN;
    let is_possible = |claimed: &i64| *claimed > 0 && (header.compression_id() != 0 || *claimed <= most);
    Ok([count, by_delta].into_iter().filter(is_possible).max())
}

/// The header at `position`; `None` when there is none, or when it was erased.
fn header_at(file: &OpenFile, position: u64, end: u64) -> Result<Option<[u8; HEADER_LEN]>, LogError> {
    let mut header = [0; HEADER_LEN];
    let is_whole = position + HEADER_LEN as u64 <= end && file.read_up_to(&mut header, position)? == HEADER_LEN;
    Ok(Some(header).filter(|header| is_whole && header.iter().any(|&byte| byte != 0)))
}

/// The checksum of `[position, end)` with another header.
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
