//! Walks over the batches of a segment, intact or not.
//!
//! A checksum covers a batch but for its base offset, length, leader epoch and magic byte. A wrong length shows in the checksum
//! of the bytes that it names, a wrong base offset or epoch in the batches before and after.

use std::io;
use std::path::Path;

use klamm_records::header::{HEADER_LEN, Header, compute_crc};

use super::Progress;
use super::reader::{HEADERS, Reader, WHOLE};

/// Bytes between two reports of progress.
const REPORT_BYTES: u64 = 1 << 20;

/// Bytes that are no intact batch in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub position: u64,
    /// Where the next intact batch begins; the file's end when there is none.
    pub end: u64,
    pub first_offset: i64,
    /// The next intact batch's base offset, `None` when there is none.
    pub next_offset: Option<i64>,
    /// The offset after it, as its own header says in two places.
    pub claimed_next: Option<i64>,
    pub reason: String,
}

/// What a segment is made of.
#[derive(Clone, Debug, Default)]
pub struct Walked {
    pub size: u64,
    pub batches: u64,
    /// The offset after the last intact batch; the base offset when there is none.
    pub next_offset: i64,
    /// Each leader epoch with the base offset of its first batch here.
    pub epochs: Vec<(i32, i64)>,
    pub damage: Vec<Damage>,
    /// `[first, next)` that no batch holds.
    pub gaps: Vec<(u64, i64, i64)>,
    /// Where nothing but zeroes follows.
    pub zeroes_from: Option<u64>,
    /// Of the last batch.
    pub ends_with_control: bool,
}

/// How to look at a segment.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub base_offset: i64,
    /// Every checksum is verified.
    pub is_deep: bool,
    /// Batches from this offset on are verified in any case.
    pub deep_from: i64,
}

/// Reads a segment; `on_batch` gets position and header of each intact batch.
pub fn walk(
    path: &Path,
    how: How,
    progress: &Progress,
    mut on_batch: impl FnMut(u64, &Header<'_>),
) -> io::Result<Walked> {
    let piece = if how.is_deep { WHOLE } else { HEADERS };
    let mut walk = Walk {
        reader: Reader::open(path, piece)?,
        how,
        found: Walked { next_offset: how.base_offset, ..Walked::default() },
    };
    walk.found.size = walk.reader.size();
    let (mut position, mut reported) = (0, 0);
    while position < walk.found.size && !progress.is_cancelled() {
        position = walk.step(position, &mut on_batch)?;
        if position - reported >= REPORT_BYTES {
            progress.done.fetch_add(position - reported, std::sync::atomic::Ordering::Relaxed);
            reported = position;
        }
    }
    progress.done.fetch_add(walk.found.size - reported, std::sync::atomic::Ordering::Relaxed);
    Ok(walk.found)
}

struct Walk {
    reader: Reader,
    how: How,
    found: Walked,
}

impl Walk {
    /// Takes what begins at `position`: where it ends.
    fn step(&mut self, position: u64, on_batch: &mut impl FnMut(u64, &Header<'_>)) -> io::Result<u64> {
        let is_deep = self.is_deep_at(position)?;
        let reason = match self.check(position, is_deep)? {
            Ok(bytes) => {
                let header = Header::at_start_of(&bytes).expect("a whole header");
                let end = position + header.size().expect("checked") as u64;
                match self.wrong_place(&header, end)? {
                    None => {
                        self.take(position, &header);
                        on_batch(position, &header);
                        return Ok(end);
                    }
                    Some(reason) => reason,
                }
            }
            Err(reason) => reason,
        };
        if self.reader.first_not_zero(position)? == self.found.size {
            self.found.zeroes_from = Some(position);
            return Ok(self.found.size);
        }
        let end = self.next_intact(position)?;
        let next_offset = self.header_at(end)?.map(|bytes| base_offset(&bytes));
        let first_offset = self.found.next_offset;
        let claimed_next = self.claimed_next(position)?;
        self.found.damage.push(Damage { position, end, first_offset, next_offset, claimed_next, reason });
        self.found.next_offset = next_offset.unwrap_or(first_offset);
        Ok(end)
    }

    fn take(&mut self, position: u64, header: &Header<'_>) {
        let found = &mut self.found;
        if header.base_offset() > found.next_offset {
            found.gaps.push((position, found.next_offset, header.base_offset()));
        }
        if found.epochs.last().is_none_or(|&(epoch, _)| header.leader_epoch() > epoch) && header.leader_epoch() >= 0 {
            found.epochs.push((header.leader_epoch(), header.base_offset()));
        }
        found.batches += 1;
        found.next_offset = header.next_offset();
        found.ends_with_control = header.is_control();
    }

    fn is_deep_at(&mut self, position: u64) -> io::Result<bool> {
        if self.how.is_deep || self.how.deep_from <= self.how.base_offset {
            return Ok(true);
        }
        Ok(self.header_at(position)?.is_some_and(|bytes| base_offset(&bytes) >= self.how.deep_from))
    }

    fn header_at(&mut self, position: u64) -> io::Result<Option<[u8; HEADER_LEN]>> {
        if position + HEADER_LEN as u64 > self.found.size {
            return Ok(None);
        }
        Ok(self.reader.bytes(position, HEADER_LEN)?.first_chunk().copied())
    }

    /// The header of the batch at `position`, or why there is none.
    fn check(&mut self, position: u64, is_deep: bool) -> io::Result<Result<[u8; HEADER_LEN], String>> {
        let left = self.found.size - position;
        let Some(bytes) = self.header_at(position)? else { return Ok(Err(format!("{left} bytes are no batch"))) };
        let header = Header::at_start_of(&bytes).expect("a whole header");
        if header.magic() != 2 {
            return Ok(Err(format!("magic {}", header.magic())));
        }
        let (base, delta) = (header.base_offset(), header.last_offset_delta());
        if base < 0 || delta < 0 || base.checked_add(i64::from(delta) + 1).is_none() {
            return Ok(Err(format!("base offset {base} and last offset delta {delta}")));
        }
        let Some(size) = header.size().filter(|&size| size as u64 <= left) else {
            return Ok(Err(format!("length {} with {left} bytes left", header.length())));
        };
        if is_deep {
            let batch = self.reader.bytes(position, size)?;
            let computed = compute_crc(batch);
            if computed != header.crc() {
                let stored = header.crc();
                return Ok(Err(format!("checksum {stored:#010x}, and the bytes give {computed:#010x}")));
            }
        }
        Ok(Ok(bytes))
    }

    /// What is wrong with base offset or leader epoch of an intact batch that ends at `end`.
    fn wrong_place(&mut self, header: &Header<'_>, end: u64) -> io::Result<Option<String>> {
        let (base, expected, epoch) = (header.base_offset(), self.found.next_offset, header.leader_epoch());
        let after = self.header_at(end)?;
        let after = after.as_ref().and_then(|bytes| Header::at_start_of(bytes)).filter(|after| after.magic() == 2);
        let is_too_far = after.is_some_and(|after| {
            let as_expected = expected + i64::from(header.last_offset_delta()) + 1;
            after.base_offset() < header.next_offset() && after.base_offset() >= as_expected
        });
        if base < expected || base > expected && is_too_far {
            return Ok(Some(format!("base offset {base} where offset {expected} is due")));
        }
        let before = self.found.epochs.last().map_or(-1, |&(epoch, _)| epoch);
        let is_alone = after.is_some_and(|after| (0..epoch).contains(&after.leader_epoch()));
        if epoch < -1 || epoch < before && epoch >= 0 || epoch > before && is_alone {
            return Ok(Some(format!("leader epoch {epoch} after {before}")));
        }
        Ok(None)
    }

    fn claimed_next(&mut self, position: u64) -> io::Result<Option<i64>> {
        let bytes = self.header_at(position)?;
        let header = bytes.as_ref().and_then(|bytes| Header::at_start_of(bytes));
        let header =
            header.filter(|header| header.record_count() > 0 && header.base_offset() == self.found.next_offset);
        let header = header.filter(|header| header.record_count() - 1 == header.last_offset_delta());
        Ok(header.map(|header| header.next_offset()))
    }

    /// Where the next intact batch begins after damage at `position`; the end when there is none.
    fn next_intact(&mut self, position: u64) -> io::Result<u64> {
        if let Some(bytes) = self.header_at(position)? {
            let claimed = Header::at_start_of(&bytes).and_then(|header| header.size());
            let end = claimed.map(|size| position + size as u64);
            if let Some(end) = end.filter(|&end| end <= self.found.size)
                && (end == self.found.size || self.is_intact(end)?)
            {
                return Ok(end);
            }
        }
        let mut at = position + 1;
        while at + HEADER_LEN as u64 <= self.found.size {
            // The magic byte is at 16: few other bytes are a 2.
            let bytes = self.reader.some(at + 16)?;
            let Some(skipped) = bytes.iter().position(|&byte| byte == 2) else {
                at += bytes.len() as u64;
                continue;
            };
            at += skipped as u64;
            if self.is_intact(at)? {
                return Ok(at);
            }
            at += 1;
        }
        Ok(self.found.size)
    }

    fn is_intact(&mut self, position: u64) -> io::Result<bool> {
        let Some(bytes) = self.header_at(position)? else { return Ok(false) };
        if base_offset(&bytes) < self.found.next_offset {
            return Ok(false);
        }
        Ok(self.check(position, true)?.is_ok())
    }
}

fn base_offset(header: &[u8; HEADER_LEN]) -> i64 {
    Header::at_start_of(header).expect("a whole header").base_offset()
}
