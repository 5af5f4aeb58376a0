//! Walks over a segment file that may be damaged: finds intact batches and the damage between them.
//!
//! The checksum of a batch covers everything except its base offset, length, leader epoch and magic. A wrong length
//! shows because the checksum of the resulting bytes is wrong. A wrong base offset contradicts the neighbours: the
//! batch before ends below it, and the batch after begins where this one ends. A wrong leader epoch contradicts them
//! too, because epochs never decrease. A power cut leaves zeroes, or the end of the file, in whole sectors; a damaged
//! batch without such sectors was complete once.

use klamm_base::LogError;
use klamm_records::header::{HEADER_LEN, Header, LENGTH_PREFIX, compute_crc};

use super::extent::{CHECKED_FROM, claimed_offsets, end_by_checksum};
use super::files::OpenFile;
use super::scan::{Batches, checked_size};

const SECTOR: u64 = 512;
/// Bytes that are searched at a time for the next intact batch.
const WINDOW: usize = 1 << 20;

/// A range of a segment that is not an intact batch in its place, and the offsets that it contained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub position: u64,
    /// The position of the next intact batch, or the segment's end.
    pub end: u64,
    /// The offset after the last intact batch before the damage.
    pub first_offset: i64,
    /// The offset at which the log continues: that of the next intact batch or segment, or what the damaged header
    /// claims.
    pub next_offset: i64,
    pub reason: String,
    /// A power cut may have caused this in bytes that were not synced.
    pub may_be_torn: bool,
    /// A killed process may have caused this: the last bytes of a write are missing.
    pub may_be_cut_short: bool,
    /// Only zeroes up to the end: a prepared tail, or erased bytes.
    pub is_zero_tail: bool,
}

/// The leader epoch of the first batch of a file.
pub fn first_epoch(file: &OpenFile) -> Result<Option<i32>, LogError> {
    let mut header = [0; HEADER_LEN];
    let read = file.read_up_to(&mut header, 0)?;
    let header = Header::at_start_of(&header[..read]).filter(|header| header.magic() == 2);
    Ok(header.map(|header| header.leader_epoch()).filter(|&epoch| epoch >= 0))
}

impl Damage {
    /// Merges two adjacent ranges.
    fn with(self, other: Damage) -> Damage {
        let (first, second) = if self.position <= other.position { (self, other) } else { (other, self) };
        Damage {
            end: first.end.max(second.end),
            next_offset: first.next_offset.max(second.next_offset),
            first_offset: first.first_offset.min(second.first_offset),
            ..first
        }
    }

    /// Adds the damage to `known`, which is in order and does not overlap.
    pub fn note(self, known: &mut Vec<Damage>) {
        let first = known.partition_point(|damage| damage.end <= self.position);
        let after = known.partition_point(|damage| damage.position < self.end);
        let joined = known.splice(first..after.max(first), []).fold(self, Damage::with);
        known.insert(first, joined);
    }

    /// The range of offsets for messages.
    pub fn offsets(&self) -> String {
        offsets(self.first_offset, self.next_offset)
    }

    /// The error that a reader receives.
    pub fn error(&self, file: &std::path::Path) -> LogError {
        let reason = format!("{}; {} cannot be read", self.reason, self.offsets());
        LogError::Corrupt { path: file.to_owned(), position: self.position, reason }
    }
}

/// Describes `[first, next)`.
pub fn offsets(first: i64, next: i64) -> String {
    match next - first {
        ..=0 => format!("an unknown number of offsets from {first} on"),
        1 => format!("offset {first}"),
        _ => format!("offsets {first} to {}", next - 1),
    }
}

/// Bounds on the offsets and epochs of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The offset of the batch at the first position.
    pub next_offset: i64,
    /// Every batch ends at or below this offset.
    pub limit: i64,
    /// Base offset of the next segment.
    pub next_base: Option<i64>,
    /// Compaction may have removed batches.
    pub has_gaps: bool,
    /// Leader epoch of the batch before, -1 if it is not known.
    pub epoch: i32,
    /// Leader epoch of the batch at the first position according to the epoch cache.
    pub cached_epoch: Option<i32>,
    /// No batch has a newer epoch.
    pub epoch_limit: i32,
    /// Leader epoch of the first batch of the next segment.
    pub next_epoch: Option<i32>,
    /// An offset below which the cache contains every epoch, and the newest epoch in the cache.
    pub cached_upto: Option<(i64, i32)>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            next_offset: 0,
            limit: i64::MAX,
            next_base: None,
            has_gaps: false,
            epoch: -1,
            cached_epoch: None,
            epoch_limit: i32::MAX,
            next_epoch: None,
            cached_upto: None,
        }
    }
}

/// A part of a segment.
pub enum Piece<'a> {
    /// Position and bytes of an intact batch.
    Batch(u64, &'a [u8]),
    Damage(Damage),
}

/// Reads `[position, end)` piece by piece.
pub struct Pieces<'a> {
    batches: Batches<'a>,
    search: Search<'a>,
}

impl<'a> Pieces<'a> {
    pub fn new(file: &'a OpenFile, position: u64, end: u64, bounds: Bounds) -> Self {
        Self { batches: Batches::new(file, position, end), search: Search { file, end, bounds } }
    }

    /// Where the next piece begins.
    pub fn position(&self) -> u64 {
        self.batches.position()
    }

    /// The offset after the last piece.
    pub fn next_offset(&self) -> i64 {
        self.search.bounds.next_offset
    }

    /// The next piece, `None` at the end.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, LogError> {
        let position = self.batches.position();
        let reason = match self.batches.check() {
            Ok(None) => return Ok(None),
            Ok(Some(found)) => {
                let header = *self.batches.bytes(found).first_chunk::<HEADER_LEN>().expect("a whole batch");
                let header = Header::at_start_of(&header).expect("a whole header");
                match self.search.wrong(&header, position + found.size as u64)? {
                    None => {
                        let bounds = &mut self.search.bounds;
                        bounds.next_offset = header.next_offset();
                        bounds.epoch = bounds.epoch.max(header.leader_epoch());
                        self.batches.seek(position + found.size as u64);
                        return Ok(Some(Piece::Batch(position, self.batches.bytes(found))));
                    }
                    Some(reason) => reason,
                }
            }
            Err(LogError::Corrupt { reason, .. }) => reason,
            Err(error) => return Err(error),
        };
        let damage = self.search.damage_at(position, reason)?;
        self.batches.seek(damage.end);
        self.search.bounds.next_offset = damage.next_offset;
        Ok(Some(Piece::Damage(damage)))
    }
}

/// Searches for the end of damage.
pub struct Search<'a> {
    pub file: &'a OpenFile,
    /// The end of the segment.
    pub end: u64,
    pub bounds: Bounds,
}

impl Search<'_> {
    fn header_at(&self, position: u64) -> Result<Option<[u8; HEADER_LEN]>, LogError> {
        let mut header = [0; HEADER_LEN];
        if position + HEADER_LEN as u64 > self.end {
            return Ok(None);
        }
        let read = self.file.read_up_to(&mut header, position)?;
        Ok((read == HEADER_LEN).then_some(header))
    }

    /// The header of the batch at `next`, which says something about the batch before it unless it is torn: a power cut
    /// may leave the last sector of a header, with its magic, and zeroes before it.
    fn following(&self, next: u64) -> Result<Option<[u8; HEADER_LEN]>, LogError> {
        let header = self.header_at(next)?;
        Ok(header.filter(|bytes| {
            let header = Header::at_start_of(bytes).expect("a whole header");
            header.magic() == 2 && header.length() > 0
        }))
    }

    /// Describes what is wrong with the fields of a batch that the checksum does not cover; `None` if nothing is.
    fn wrong(&self, header: &Header<'_>, next: u64) -> Result<Option<String>, LogError> {
        match self.misplaced(header, next)? {
            None => self.wrong_epoch(header, next),
            wrong => Ok(wrong),
        }
    }

    fn wrong_epoch(&self, header: &Header<'_>, next: u64) -> Result<Option<String>, LogError> {
        let (epoch, before) = (header.leader_epoch(), self.bounds.epoch);
        if epoch == before || epoch == -1 {
            return Ok(None);
        }
        let following = self.following(next)?;
        let following = following.as_ref().and_then(|bytes| Header::at_start_of(bytes));
        let following = following.map(|header| header.leader_epoch()).or(self.bounds.next_epoch);
        let is_not_cached = self.bounds.cached_upto.is_some_and(|(upto, newest)| {
            following.is_none() && header.next_offset() <= upto && newest == before && before >= 0
        });
        let is_alone = is_not_cached
            || following.is_some_and(|following| {
                (0..epoch).contains(&following)
                    || before < 0 && epoch != following && self.bounds.cached_epoch == Some(following)
            });
        if epoch < before || epoch < -1 || epoch > self.bounds.epoch_limit || is_alone {
            return Ok(Some(format!("leader epoch {epoch} after {before}")));
        }
        Ok(None)
    }

    /// Describes what is wrong with the place of an intact batch that ends at `next`; `None` if nothing is.
    pub fn misplaced(&self, header: &Header<'_>, next: u64) -> Result<Option<String>, LogError> {
        let (base, expected) = (header.base_offset(), self.bounds.next_offset);
        let wrong = || Ok(Some(format!("base offset {base} where {expected} follows")));
        if base < expected || header.next_offset() > self.bounds.limit {
            return wrong();
        }
        if base == expected {
            return Ok(None);
        }
        let as_expected = expected + i64::from(header.last_offset_delta()) + 1;
        let following = self.following(next)?;
        let following = following.as_ref().and_then(|bytes| Header::at_start_of(bytes));
        match following.map(|header| header.base_offset()).or(self.bounds.next_base) {
            // The batch after continues without a gap, so the gap before this batch is not real.
            Some(following) if following < header.next_offset() && following >= as_expected => wrong(),
            Some(following) if following == header.next_offset() || self.bounds.has_gaps => Ok(None),
            Some(following) if following < as_expected => Ok(None),
            None if self.bounds.has_gaps => Ok(None),
            _ => wrong(),
        }
    }

    /// The damage that begins at `position`, where there is no intact batch.
    pub fn damage_at(&self, position: u64, reason: String) -> Result<Damage, LogError> {
        let first_offset = self.bounds.next_offset;
        let header = self.header_at(position)?;
        let header = header.as_ref().and_then(|bytes| Header::at_start_of(bytes));
        let claimed_end = header.and_then(|header| header.size()).map(|size| position + size as u64);
        let before_zeroes = match claimed_end {
            Some(end) if end < self.end && !self.has_zero_sector(position, end)? && self.is_zero_from(end)? => {
                Some(end)
            }
            _ => None,
        };
        let end = match claimed_end {
            Some(end) if end == self.end || end < self.end && self.is_intact(end)? => end,
            // Prepared zeroes follow, or the last ones of the batch.
            _ if before_zeroes.is_some() => self.end,
            _ => self.next_intact(position + 1)?,
        };
        // A batch whose checksum proves where it ended is not torn, even if its length is wrong now.
        let proven_end = if end == self.end { end_by_checksum(self.file, position, end)? } else { None };
        let is_whole = proven_end.is_some();
        let end = match proven_end {
            Some(proven) if self.is_zero_from(proven)? => proven,
            _ => before_zeroes.unwrap_or(end),
        };
        let next_offset = match self.header_at(end)?.as_ref().and_then(|bytes| Header::at_start_of(bytes)) {
            Some(next) if end < self.end && next.length() > 0 => next.base_offset(),
            _ => match self.bounds.next_base {
                Some(next_base) => next_base,
                None => self.claimed_offset(position, end)?.unwrap_or(first_offset),
            },
        };
        let is_cut = end == self.end && claimed_end.is_none_or(|claimed| claimed > self.end);
        let ends_unwritten = end == self.end && self.ends_with_zero_sector(claimed_end.unwrap_or(end))?;
        let may_be_cut_short = !is_whole && (is_cut || ends_unwritten);
        let is_torn = self.has_zero_sector(position, end)? || self.ends_with_zeroes(claimed_end.unwrap_or(end))?;
        let may_be_torn = (!is_whole || self.has_lost_start(position)?) && (is_cut || is_torn);
        let is_zero_tail = end == self.end && super::scan::is_zero(self.file, position, end)?;
        let next_offset = next_offset.max(first_offset);
        Ok(Damage { position, end, first_offset, next_offset, reason, may_be_torn, may_be_cut_short, is_zero_tail })
    }

    fn is_zero_from(&self, position: u64) -> Result<bool, LogError> {
        super::scan::is_zero(self.file, position, self.end)
    }

    /// Whether the part of the last sector before `end` contains only zeroes.
    fn ends_with_zero_sector(&self, end: u64) -> Result<bool, LogError> {
        self.has_zero_sector(end.saturating_sub(1) / SECTOR * SECTOR, end)
    }

    /// Whether more bytes before `end` are zero than the one with which most records end: a write stopped before, within
    /// a prepared tail.
    fn ends_with_zeroes(&self, end: u64) -> Result<bool, LogError> {
        let mut last = [0xff; 2];
        let read = self.file.read_up_to(&mut last, end.min(self.end).saturating_sub(2))?;
        Ok(read == 2 && last == [0, 0])
    }

    /// The offset after the last batch according to its damaged header, if the header is plausible.
    fn claimed_offset(&self, position: u64, end: u64) -> Result<Option<i64>, LogError> {
        let next =
            claimed_offsets(self.file, position, end)?.map(|count| self.bounds.next_offset.saturating_add(count));
        Ok(next.filter(|&next| next <= self.bounds.limit))
    }

    /// Whether the bytes that a header describes match its checksum.
    pub fn has_right_checksum(&self, position: u64) -> Result<bool, LogError> {
        let Some(header) = self.header_at(position)? else { return Ok(false) };
        let header = Header::at_start_of(&header).expect("a whole header");
        let Ok(size) = checked_size(self.file, &header, position, self.end - position) else { return Ok(false) };
        let mut bytes = vec![0; size];
        self.file.read_at(&mut bytes, position)?;
        Ok(header.crc() == compute_crc(&bytes))
    }

    /// Whether `position` holds an intact batch that may follow.
    fn is_intact(&self, position: u64) -> Result<bool, LogError> {
        let Some(header) = self.header_at(position)? else { return Ok(false) };
        let header = Header::at_start_of(&header).expect("a whole header");
        if !self.may_follow(&header) {
            return Ok(false);
        }
        let Ok(size) = checked_size(self.file, &header, position, self.end - position) else { return Ok(false) };
        let mut bytes = vec![0; size];
        self.file.read_at(&mut bytes, position)?;
        if header.crc() != compute_crc(&bytes) {
            return Ok(false);
        }
        // A batch inside a record's value is unlikely to be followed by further batches.
        let next = position + size as u64;
        let Some(following) = self.header_at(next)? else { return Ok(next == self.end) };
        let following = Header::at_start_of(&following).expect("a whole header");
        let is_zero = following.magic() == 0 && following.length() == 0;
        Ok(is_zero || checked_size(self.file, &following, next, self.end - next).is_ok() || next == self.end)
    }

    fn may_follow(&self, header: &Header<'_>) -> bool {
        let delta = header.last_offset_delta();
        header.base_offset() >= self.bounds.next_offset
            && delta >= 0
            && header.base_offset().checked_add(i64::from(delta) + 1).is_some_and(|next| next <= self.bounds.limit)
    }

    /// The position of the next intact batch at or after `from`; the segment's end if there is none.
    fn next_intact(&self, from: u64) -> Result<u64, LogError> {
        let mut window = vec![0; self.end.saturating_sub(from).min(WINDOW as u64) as usize];
        let mut at = from;
        while at + HEADER_LEN as u64 <= self.end {
            let want = (self.end - at).min(window.len() as u64) as usize;
            let read = self.file.read_up_to(&mut window[..want], at)?;
            if read < HEADER_LEN {
                break;
            }
            for start in 0..=read - HEADER_LEN {
                let header = Header::at_start_of(&window[start..read]).expect("a whole header");
                let left = self.end - at - start as u64;
                if header.magic() == 2
                    && header.length() as i64 >= (HEADER_LEN - LENGTH_PREFIX) as i64
                    && header.length() as u64 + LENGTH_PREFIX as u64 <= left
                    && self.may_follow(&header)
                    && self.is_intact(at + start as u64)?
                {
                    return Ok(at + start as u64);
                }
            }
            at += (read - HEADER_LEN + 1) as u64;
        }
        Ok(self.end)
    }

    /// Whether a sector ends within the bytes of a header that the checksum does not cover, and what is in it is zero:
    /// the rest of the batch may be whole.
    fn has_lost_start(&self, position: u64) -> Result<bool, LogError> {
        let sector_end = (position / SECTOR + 1) * SECTOR;
        if sector_end - position >= CHECKED_FROM {
            return Ok(false);
        }
        super::scan::is_zero(self.file, position, sector_end.min(self.end))
    }

    /// Whether some sector's part of `[position, end)` contains only zeroes.
    fn has_zero_sector(&self, position: u64, end: u64) -> Result<bool, LogError> {
        let mut sector = [0; SECTOR as usize];
        let mut at = position;
        while at < end {
            let next = ((at / SECTOR + 1) * SECTOR).min(end);
            let part = &mut sector[..(next - at) as usize];
            let read = self.file.read_up_to(part, at)?;
            if part[..read].iter().all(|&byte| byte == 0) {
                return Ok(true);
            }
            at = next;
        }
        Ok(false)
    }
}
