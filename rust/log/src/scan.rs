//! Walks over the batches of a segment file: headers only, or complete batches with their checksum.

use klamm_base::LogError;
use klamm_records::header::{HEADER_LEN, Header, LENGTH_PREFIX, compute_crc};

use super::damage::{Bounds, Damage, Search};
use super::files::OpenFile;

/// Bytes read at a time when only headers matter and batches are small. Of larger batches, only the header is read:
/// the bytes after it are not in the CPU cache, and copying them takes longer than the system call.
pub(super) const HEADER_CHUNK: usize = 4096;
/// Bytes read at a time when all bytes matter.
const BODY_CHUNK: usize = 1 << 20;
/// Smallest length field of message formats v0 and v1.
const OLD_FORMAT_LENGTH_MIN: i32 = 14;

/// A batch's position in its file and a copy of its header.
#[derive(Clone, Copy)]
pub struct BatchAt {
    pub position: u64,
    /// Size of the whole batch in bytes.
    pub size: usize,
    header: [u8; HEADER_LEN],
}

impl BatchAt {
    pub fn header(&self) -> Header<'_> {
        Header::at_start_of(&self.header).expect("a whole header")
    }

    /// Whether its bytes match its checksum.
    pub fn is_intact(&self, file: &OpenFile) -> Result<bool, LogError> {
        let mut bytes = vec![0; self.size];
        file.read_at(&mut bytes, self.position)?;
        Ok(self.header().crc() == compute_crc(&bytes))
    }
}

/// The error for bytes that are not a batch.
fn damage(file: &OpenFile, position: u64, reason: impl Into<String>) -> LogError {
    LogError::Corrupt { path: file.path().to_owned(), position, reason: reason.into() }
}

/// The size of the batch that starts with `header`; fails unless it fits into `left` bytes.
pub(super) fn checked_size(file: &OpenFile, header: &Header<'_>, position: u64, left: u64) -> Result<usize, LogError> {
    match header.magic() {
        2 => {}
        magic @ (0 | 1) if is_old_message(file, header, position, left)? => {
            return Err(LogError::OldFormat { path: file.path().to_owned(), position, magic });
        }
        magic => return Err(damage(file, position, format!("magic {magic}"))),
    }
    let (base_offset, delta) = (header.base_offset(), header.last_offset_delta());
    // The next offset must be valid too.
    if base_offset < 0 || delta < 0 || base_offset.checked_add(i64::from(delta) + 1).is_none() {
        return Err(damage(file, position, format!("base offset {base_offset} and last offset delta {delta}")));
    }
    match header.size() {
        Some(size) if size as u64 <= left => Ok(size),
        _ => Err(damage(file, position, format!("length {} with {left} bytes left", header.length()))),
    }
}

/// Whether the bytes are a message of format v0 or v1 rather than a damaged batch: the CRC-32 of the bytes from magic
/// on is right.
fn is_old_message(file: &OpenFile, header: &Header<'_>, position: u64, left: u64) -> Result<bool, LogError> {
    let length = header.length();
    if length < OLD_FORMAT_LENGTH_MIN || length as u64 + LENGTH_PREFIX as u64 > left {
        return Ok(false);
    }
    let mut message = vec![0; length as usize];
    file.read_at(&mut message, position + LENGTH_PREFIX as u64)?;
    let (stored, checked) = message.split_first_chunk().expect("at least 14 bytes");
    Ok(u32::from_be_bytes(*stored) == crc32(checked))
}

/// The CRC-32 of the old formats; bit by bit, because it is only used to reject them.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// Reads the headers in `[position, end)`.
pub struct Headers<'a> {
    file: &'a OpenFile,
    position: u64,
    end: u64,
    /// Last offset of the batch before.
    after: i64,
    chunk: [u8; HEADER_CHUNK],
    chunk_at: u64,
    chunk_len: usize,
    /// Bytes to read if the next header is not in the chunk.
    want: usize,
    /// If set, damage is skipped and recorded; no batch may reach this offset.
    limit: Option<i64>,
    found: Vec<Damage>,
    /// Position of the previous batch, and the last offset of the one before it.
    passed: Option<(u64, i64)>,
}

impl<'a> Headers<'a> {
    /// `position` must be the start of a batch and `end` the end of one; no batch may contain an offset below
    /// `base_offset`.
    pub fn new(file: &'a OpenFile, position: u64, end: u64, base_offset: i64) -> Self {
        let after = base_offset - 1;
        let chunk = [0; HEADER_CHUNK];
        let (want, limit, found) = (HEADER_LEN, None, Vec::new());
        Self { file, position, end, after, chunk, chunk_at: 0, chunk_len: 0, want, limit, found, passed: None }
    }

    /// Skips damage. No batch may contain offset `limit` or a later one.
    pub fn skipping(self, limit: i64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// The damage that was skipped.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.found)
    }

    /// Starts at the batch after `before`.
    pub fn after(file: &'a OpenFile, before: &BatchAt, end: u64) -> Self {
        let mut headers = Self::new(file, before.position, end, before.header().base_offset());
        headers.passed = Some((before.position, before.header().base_offset() - 1));
        headers.pass(before.size, before.header().last_offset());
        headers
    }

    /// The next batch, `None` at the end. Damage is an error unless it is skipped.
    pub fn next(&mut self) -> Result<Option<BatchAt>, LogError> {
        loop {
            let before = (self.position, self.after);
            let found = self.read_next();
            let Some(limit) = self.limit else { return found };
            let reason = match found {
                Err(LogError::Corrupt { reason, .. }) => reason,
                Ok(Some(batch)) => match self.misplaced(&batch, before.1 + 1, limit)? {
                    None => {
                        self.passed = Some(before);
                        return Ok(Some(batch));
                    }
                    Some(reason) => reason,
                },
                result => return result,
            };
            // A wrong length is noticed only when the bytes after it are read.
            let (before, reason) = match self.passed {
                Some(passed) if !self.search(passed.1 + 1, limit).has_right_checksum(passed.0)? => {
                    (passed, format!("its length or its checksum is wrong; {reason} where it ends"))
                }
                _ => (before, reason),
            };
            self.skip(before.0, before.1 + 1, limit, reason)?;
        }
    }

    /// Skips the batch that was returned last, whose checksum is wrong; the one before it ended at `first_offset`.
    pub fn skip_damaged(&mut self, batch: &BatchAt, first_offset: i64) -> Result<(), LogError> {
        let reason = format!("checksum {:#010x} is wrong", batch.header().crc());
        self.skip(batch.position, first_offset, self.limit.unwrap_or(i64::MAX), reason)
    }

    fn skip(&mut self, position: u64, first_offset: i64, limit: i64, reason: String) -> Result<(), LogError> {
        self.passed = None;
        let damage = self.search(first_offset, limit).damage_at(position, reason)?;
        (self.position, self.after) = (damage.end, damage.next_offset - 1);
        self.want = HEADER_LEN;
        self.found.push(damage);
        Ok(())
    }

    fn search(&self, next_offset: i64, limit: i64) -> Search<'a> {
        let bounds = Bounds { next_offset, limit, has_gaps: true, ..Bounds::default() };
        Search { file: self.file, end: self.end, bounds }
    }

    fn misplaced(&self, batch: &BatchAt, expected: i64, limit: i64) -> Result<Option<String>, LogError> {
        let header = batch.header();
        if header.base_offset() == expected && header.next_offset() <= limit {
            return Ok(None);
        }
        self.search(expected, limit).misplaced(&header, batch.position + batch.size as u64)
    }

    fn read_next(&mut self) -> Result<Option<BatchAt>, LogError> {
        if self.position >= self.end {
            return Ok(None);
        }
        let left = self.end - self.position;
        if left < HEADER_LEN as u64 {
            return Err(damage(self.file, self.position, format!("{left} bytes at the end")));
        }
        let in_chunk = self.position >= self.chunk_at
            && self.position + HEADER_LEN as u64 <= self.chunk_at + self.chunk_len as u64;
        if !in_chunk {
            let want = left.min(self.want as u64) as usize;
            self.chunk_at = self.position;
            self.chunk_len = self.file.read_up_to(&mut self.chunk[..want], self.position)?;
        }
        let from = (self.position - self.chunk_at) as usize;
        let bytes = &self.chunk[from..self.chunk_len.max(from)];
        let header = *bytes.first_chunk().ok_or_else(|| damage(self.file, self.position, "the file ends early"))?;
        let position = self.position;
        let view = Header::at_start_of(&header).expect("a whole header");
        let size = checked_size(self.file, &view, position, left)?;
        if view.base_offset() <= self.after {
            let reason = format!("offset {} after {}", view.base_offset(), self.after);
            return Err(damage(self.file, position, reason));
        }
        self.pass(size, view.last_offset());
        Ok(Some(BatchAt { position, size, header }))
    }

    fn pass(&mut self, size: usize, last_offset: i64) {
        self.after = last_offset;
        self.position += size as u64;
        self.want = if size < HEADER_CHUNK { HEADER_CHUNK } else { HEADER_LEN };
    }

    /// The first batch that satisfies `wanted`.
    pub fn find(&mut self, wanted: impl Fn(&Header<'_>) -> bool) -> Result<Option<BatchAt>, LogError> {
        while let Some(batch) = self.next()? {
            if wanted(&batch.header()) {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }
}

/// A batch in the chunk.
#[derive(Clone, Copy)]
pub(super) struct InChunk {
    from: usize,
    pub(super) size: usize,
}

/// Reads the complete batches in `[position, end)`.
pub struct Batches<'a> {
    file: &'a OpenFile,
    /// Position of the next batch.
    position: u64,
    end: u64,
    chunk: Vec<u8>,
    chunk_at: u64,
    chunk_bytes: usize,
}

impl<'a> Batches<'a> {
    pub fn new(file: &'a OpenFile, position: u64, end: u64) -> Self {
        Self { file, position, end, chunk: Vec::new(), chunk_at: position, chunk_bytes: BODY_CHUNK }
    }

    /// Reads this many bytes at a time, more if a batch is larger.
    pub fn reading(self, chunk_bytes: usize) -> Self {
        Self { chunk_bytes, ..self }
    }

    /// The next batch and its position, with size and checksum verified; `None` at the end.
    pub fn next_valid(&mut self) -> Result<Option<(u64, &[u8])>, LogError> {
        let position = self.position;
        let Some(found) = self.check()? else { return Ok(None) };
        self.position = position + found.size as u64;
        Ok(Some((position, self.bytes(found))))
    }

    /// The same without advancing.
    pub(super) fn check(&mut self) -> Result<Option<InChunk>, LogError> {
        let Some((position, from, size)) = self.locate()? else { return Ok(None) };
        let bytes = &self.chunk[from..from + size];
        let header = Header::at_start_of(bytes).expect("a whole header");
        let (stored, computed) = (header.crc(), compute_crc(bytes));
        if stored != computed {
            let reason = format!("checksum {stored:#010x}, its bytes give {computed:#010x}");
            return Err(damage(self.file, position, reason));
        }
        Ok(Some(InChunk { from, size }))
    }

    /// The bytes of the batch found last.
    pub(super) fn bytes(&self, found: InChunk) -> &[u8] {
        &self.chunk[found.from..found.from + found.size]
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Continues at `position`, which is after the current one.
    pub(super) fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// Loads the next batch into the chunk; returns its position, its index in the chunk and its size.
    fn locate(&mut self) -> Result<Option<(u64, usize, usize)>, LogError> {
        let position = self.position;
        if position >= self.end {
            return Ok(None);
        }
        let left = self.end - position;
        if left < HEADER_LEN as u64 {
            return Err(damage(self.file, position, format!("{left} bytes at the end")));
        }
        self.fill(HEADER_LEN)?;
        let from = (position - self.chunk_at) as usize;
        let header = Header::at_start_of(&self.chunk[from..]).expect("filled above");
        let size = checked_size(self.file, &header, position, left)?;
        self.fill(size)?;
        Ok(Some((position, (position - self.chunk_at) as usize, size)))
    }

    /// Loads `need` bytes at the position into the chunk; they are within the end.
    fn fill(&mut self, need: usize) -> Result<(), LogError> {
        let have_to = self.chunk_at + self.chunk.len() as u64;
        if self.position + need as u64 <= have_to {
            return Ok(());
        }
        let keep_from = (self.position.min(have_to) - self.chunk_at) as usize;
        self.chunk.drain(..keep_from);
        self.chunk_at = self.position;
        let want = need.max(self.chunk_bytes).min((self.end - self.position) as usize);
        let have = self.chunk.len();
        self.chunk.resize(want, 0);
        let read = self.file.read_up_to(&mut self.chunk[have..], self.position + have as u64)?;
        self.chunk.truncate(have + read);
        if self.chunk.len() < need {
            return Err(damage(self.file, self.position, "the file ends early"));
        }
        Ok(())
    }
}

/// Whether `[position, end)` contains only zeroes: a prepared tail that was never written.
pub fn is_zero(file: &OpenFile, mut position: u64, end: u64) -> Result<bool, LogError> {
    let mut chunk = vec![0u8; 64 << 10];
    while position < end {
        let want = (end - position).min(chunk.len() as u64) as usize;
        let read = file.read_up_to(&mut chunk[..want], position)?;
        if read == 0 {
            break;
        }
        if chunk[..read].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        position += read as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_old_checksum_is_the_known_one() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
