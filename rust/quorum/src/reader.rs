//! Reads a metadata log that another process may be writing: takes no lock and changes no file.
//!
//! The last segment may end with an incomplete batch, or with zeroes that were prepared for the next one: the log
//! currently ends before them. Elsewhere an incomplete batch is damage.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use klamm_base::LogError;
use klamm_records::{Batch, HEADER_LEN, Header};

use super::snapshots::SnapshotId;

const SEGMENT_SUFFIX: &str = ".log";
/// Bytes read at a time if only headers matter.
const HEADERS_BYTES: usize = 64 << 10;

/// The current end of a log, and a description of the bytes after it, if there are any other than zeroes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderEnd {
    pub offset: i64,
    pub torn: Option<String>,
}

/// Reads one folder by offset. Keeps the position of the last read, so that sequential reads need no search.
#[derive(Debug)]
pub struct LogReader {
    dir: PathBuf,
    place: Option<Place>,
}

/// The position after a batch that was read.
#[derive(Debug)]
struct Place {
    base_offset: i64,
    next_offset: i64,
    position: u64,
    /// The batch's header and position: if the header is still there, the position is valid.
    header: [u8; HEADER_LEN],
    header_at: u64,
}

/// A segment that is open for reading.
struct Segment {
    path: PathBuf,
    file: File,
    base_offset: i64,
    is_last: bool,
}

/// The result of `Segment::walk`.
struct Walked {
    /// The position of the batch that was searched for, or the position after the last complete one.
    position: u64,
    next_offset: i64,
    found: bool,
    /// Position, size and base offset of the last batch before it.
    last: Option<(u64, usize, i64)>,
}

impl LogReader {
    /// For `<metadata.log.dir>/__cluster_metadata-0`. Reads nothing yet.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), place: None }
    }

    /// The finished snapshots, oldest first.
    pub fn snapshots(&self) -> Result<Vec<SnapshotId>, LogError> {
        self.list(SnapshotId::of_file)
    }

    /// The base offset of the first segment; `None` if there is no segment.
    pub fn start_offset(&self) -> Result<Option<i64>, LogError> {
        Ok(self.segments()?.first().copied())
    }

    /// The current end of the log.
    pub fn end(&self) -> Result<ReaderEnd, LogError> {
        let Some(base_offset) = self.segments()?.last().copied() else {
            return Ok(ReaderEnd { offset: 0, torn: None });
        };
        let segment = self.open(base_offset, true)?;
        let walked = segment.walk(0, base_offset, |_| false)?;
        // A header can be complete while its body is not.
        if let Some((position, size, offset)) = walked.last
            && let Err(reason) = check(&segment.bytes(position, size)?)
        {
            return Ok(ReaderEnd { offset, torn: Some(segment.describe(position, &reason)) });
        }
        let torn = segment.torn_at(walked.position)?;
        Ok(ReaderEnd { offset: walked.next_offset, torn })
    }

    /// The offset of the first batch with a timestamp after `timestamp_ms`, or the log's end.
    pub fn offset_after_time(&self, timestamp_ms: i64) -> Result<i64, LogError> {
        let segments = self.segments()?;
        for (at, &base_offset) in segments.iter().enumerate() {
            let segment = self.open(base_offset, at + 1 == segments.len())?;
            let walked = segment.walk(0, base_offset, |header| header.max_timestamp() > timestamp_ms)?;
            if walked.found {
                return Ok(walked.next_offset);
            }
        }
        Ok(self.end()?.offset)
    }

    /// Complete, verified batches, beginning with the batch that contains `offset`: at least one, then as many as fit. Empty at
    /// the end.
    ///
    /// `OffsetOutOfRange`: the record was removed, or the log was truncated below it.
    pub fn read(&mut self, offset: i64, max_bytes: usize) -> Result<Vec<u8>, LogError> {
        let segments = self.segments()?;
        let start = segments.first().copied().unwrap_or(0);
        let Some(mut at) = segments.partition_point(|&base| base <= offset).checked_sub(1) else {
            return if segments.is_empty() && offset == 0 { Ok(Vec::new()) } else { self.out_of_range(offset, start) };
        };
        loop {
            let is_last = at + 1 == segments.len();
            let segment = self.open(segments[at], is_last)?;
            let located = self.locate(&segment, offset)?;
            if let Some((position, base_offset)) = located {
                let bytes = segment.whole_batches(position, base_offset, max_bytes)?;
                if !bytes.is_empty() {
                    self.place = Some(Place::after(&segment, position, &bytes));
                    return Ok(bytes);
                }
            }
            match segments.get(at + 1) {
                // The segment was rolled, and its tail may not be truncated yet.
                Some(&next) if next == offset => at += 1,
                Some(_) => {
                    return Err(segment
                        .damaged(located.map_or(0, |(position, _)| position), &format!("offset {offset} is missing")));
                }
                None if located.is_some() => return Ok(Vec::new()),
                None => return self.out_of_range(offset, start),
            }
        }
    }

    /// The position in the segment of the batch with `offset`, existing or expected, and the smallest base offset
    /// that it may have; `None` if the segment ends earlier.
    fn locate(&self, segment: &Segment, offset: i64) -> Result<Option<(u64, i64)>, LogError> {
        if let Some(place) = &self.place
            && place.base_offset == segment.base_offset
            && place.next_offset == offset
            && place.is_still_there(segment)
        {
            return Ok(Some((place.position, offset)));
        }
        let walked = segment.walk(0, segment.base_offset, |header| header.last_offset() >= offset)?;
        Ok((walked.found || walked.next_offset == offset).then_some((walked.position, walked.next_offset)))
    }

    fn out_of_range<T>(&self, offset: i64, start: i64) -> Result<T, LogError> {
        Err(LogError::OffsetOutOfRange { offset, start, end: self.end()?.offset })
    }

    /// Base offsets of the segments in ascending order.
    fn segments(&self) -> Result<Vec<i64>, LogError> {
        self.list(|name| {
            let digits = name.strip_suffix(SEGMENT_SUFFIX)?;
            (digits.len() == 20).then(|| digits.parse().ok()).flatten()
        })
    }

    fn list<T: Ord>(&self, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, LogError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(LogError::io("cannot list", &self.dir))? {
            let name = entry.map_err(LogError::io("cannot list", &self.dir))?.file_name();
            found.extend(name.to_str().and_then(&parse));
        }
        found.sort_unstable();
        Ok(found)
    }

    fn open(&self, base_offset: i64, is_last: bool) -> Result<Segment, LogError> {
        let path = self.dir.join(format!("{base_offset:020}{SEGMENT_SUFFIX}"));
        let file = File::open(&path).map_err(LogError::io("cannot open", &path))?;
        Ok(Segment { path, file, base_offset, is_last })
    }
}

impl Place {
    fn after(segment: &Segment, position: u64, bytes: &[u8]) -> Self {
        let mut at = 0;
        let mut last = 0;
        while at < bytes.len() {
            last = at;
            at += Batch::at_start_of(&bytes[at..]).expect("checked when it was read").bytes().len();
        }
        let header: [u8; HEADER_LEN] = *bytes[last..].first_chunk().expect("a batch holds a header");
        let next_offset = Header::at_start_of(&header).expect("a whole header").next_offset();
        let (base_offset, position) = (segment.base_offset, position + bytes.len() as u64);
        Self { base_offset, next_offset, position, header, header_at: position - (bytes.len() - last) as u64 }
    }

    fn is_still_there(&self, segment: &Segment) -> bool {
        let mut header = [0; HEADER_LEN];
        segment.file.read_exact_at(&mut header, self.header_at).is_ok() && header == self.header
    }
}

impl Segment {
    /// Walks over headers from a batch's `position` on, up to the first that satisfies `wanted`, or to the end.
    fn walk(
        &self,
        mut position: u64,
        mut next_offset: i64,
        wanted: impl Fn(&Header<'_>) -> bool,
    ) -> Result<Walked, LogError> {
        let mut last = None;
        let (mut chunk, mut chunk_at) = (Vec::new(), 0);
        let end = self.len()?;
        while position + HEADER_LEN as u64 <= end {
            if position < chunk_at || position + HEADER_LEN as u64 > chunk_at + chunk.len() as u64 {
                chunk = self.bytes(position, HEADERS_BYTES)?;
                chunk_at = position;
            }
            let Some(header) = Header::at_start_of(&chunk[(position - chunk_at) as usize..]) else { break };
            let size = header.size().filter(|&size| header.magic() == 2 && position + size as u64 <= end);
            let Some(size) = size.filter(|_| header.base_offset() >= next_offset && header.last_offset_delta() >= 0)
            else {
                break;
            };
            if wanted(&header) {
                return Ok(Walked { position, next_offset: header.base_offset(), found: true, last });
            }
            last = Some((position, size, header.base_offset()));
            next_offset = header.next_offset();
            position += size as u64;
        }
        if !self.is_last && position < end && !self.is_zero_from(position)? {
            return Err(self.damaged(position, "no batch begins here"));
        }
        Ok(Walked { position, next_offset, found: false, last })
    }

    /// Complete, verified batches from `position` on, none before `next_offset`: at least one if there is one.
    fn whole_batches(&self, position: u64, mut next_offset: i64, max_bytes: usize) -> Result<Vec<u8>, LogError> {
        let mut bytes = self.bytes(position, max_bytes.max(HEADER_LEN))?;
        let first = Header::at_start_of(&bytes).filter(|header| header.magic() == 2).and_then(|header| header.size());
        let Some(first) = first else { return Ok(Vec::new()) };
        if first > bytes.len() {
            if position + first as u64 > self.len()? {
                return Ok(Vec::new());
            }
            bytes = self.bytes(position, first)?;
        }
        let mut whole = 0;
        while let Ok(batch) = Batch::at_start_of(&bytes[whole..]) {
            if let Err(reason) = check_follows(&batch, next_offset) {
                // Return the intact batches before it first; the next read reports the damage.
                if self.is_last || whole > 0 {
                    break;
                }
                return Err(self.damaged(position + whole as u64, &reason));
            }
            whole += batch.bytes().len();
            next_offset = batch.header().next_offset();
        }
        bytes.truncate(whole);
        Ok(bytes)
    }

    /// Describes the bytes after the last complete batch: `None` for none or zeroes.
    fn torn_at(&self, position: u64) -> Result<Option<String>, LogError> {
        if self.is_zero_from(position)? {
            return Ok(None);
        }
        Ok(Some(self.describe(position, "a batch is not whole")))
    }

    fn is_zero_from(&self, mut position: u64) -> Result<bool, LogError> {
        loop {
            let chunk = self.bytes(position, HEADERS_BYTES)?;
            if chunk.is_empty() {
                return Ok(true);
            }
            if chunk.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            position += chunk.len() as u64;
        }
    }

    fn describe(&self, position: u64, reason: &str) -> String {
        format!("{} ends at byte {position}: {reason}", self.path.display())
    }

    fn damaged(&self, position: u64, reason: &str) -> LogError {
        LogError::Corrupt { path: self.path.clone(), position, reason: reason.to_owned() }
    }

    fn len(&self) -> Result<u64, LogError> {
        Ok(self.file.metadata().map_err(LogError::io("cannot read", &self.path))?.len())
    }

    /// At most `most` bytes, fewer at the file's end.
    fn bytes(&self, position: u64, most: usize) -> Result<Vec<u8>, LogError> {
        let left = self.len()?.saturating_sub(position).min(most as u64) as usize;
        let mut bytes = vec![0; left];
        let mut read = 0;
        while read < left {
            match self.file.read_at(&mut bytes[read..], position + read as u64) {
                Ok(0) => break, // Cut meanwhile.
                Ok(some) => read += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LogError::io("cannot read", &self.path)(error)),
            }
        }
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// The checksum does not cover a batch's base offset.
fn check_follows(batch: &Batch<'_>, next_offset: i64) -> Result<(), String> {
    batch.check().map_err(|error| error.to_string())?;
    let header = batch.header();
    match header.base_offset() >= next_offset && header.next_offset() > header.base_offset() {
        true => Ok(()),
        false => {
            Err(format!("found a batch at offset {} where offset {next_offset} is expected", header.base_offset()))
        }
    }
}

fn check(bytes: &[u8]) -> Result<(), String> {
    Batch::at_start_of(bytes).and_then(|batch| batch.check()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::{Seek, SeekFrom, Write};
    use std::sync::mpsc::channel;

    use klamm_log::LogContext;
    use klamm_records::batches;
    use tempfile::{TempDir, tempdir};

    use super::*;
    use crate::{OnLoss, QuorumLog, QuorumLogConfig};

    const FIRST: &str = "00000000000000000000.log";

    fn open(dir: &Path) -> QuorumLog {
        let config = QuorumLogConfig { segment_bytes: 1000, segment_ms: i64::MAX, advice: None };
        QuorumLog::open(dir, &config, &LogContext::new(16), OnLoss::Refuse, 0).expect("open").0
    }

    /// Appends `count` batches of two records; batch `i` has epoch `i / 10` and timestamp `i`.
    fn append(log: &QuorumLog, from: usize, count: usize) {
        for at in from..from + count {
            log.append(&[[at as u8; 40], [0; 40]], at as i32 / 10, at as i64).expect("append");
        }
        let (sender, flushed) = channel();
        log.start_flush(Box::new(move |done| sender.send(done.map(drop)).expect("awaited")));
        flushed.recv().expect("an answer").expect("flush");
    }

    fn written(count: usize) -> (TempDir, QuorumLog) {
        let dir = tempdir().expect("temporary directory");
        let log = open(dir.path());
        append(&log, 0, count);
        (dir, log)
    }

    fn offsets(bytes: &[u8]) -> Vec<i64> {
        batches(bytes).map(|batch| batch.expect("whole").header().base_offset()).collect()
    }

    fn read_on(reader: &mut LogReader, mut offset: i64) -> Vec<i64> {
        let mut found = Vec::new();
        loop {
            let bytes = reader.read(offset, 300).expect("read");
            if bytes.is_empty() {
                return found;
            }
            found.extend(offsets(&bytes));
            offset = batches(&bytes).last().expect("some").expect("whole").header().next_offset();
        }
    }

    #[test]
    fn an_open_log_is_read_across_segments_and_as_it_grows() {
        let (dir, log) = written(20);
        assert!(fs::read_dir(dir.path()).expect("list").count() > 4, "more than one segment");
        let mut reader = LogReader::new(dir.path());
        assert_eq!(read_on(&mut reader, 0), (0..20).map(|at| at * 2).collect::<Vec<i64>>());
        assert_eq!(reader.end().expect("end"), ReaderEnd { offset: 40, torn: None });
        append(&log, 20, 3);
        assert_eq!(read_on(&mut reader, 40), [40, 42, 44]);
        assert_eq!(offsets(&reader.read(17, 1).expect("read")), [16], "the batch that holds the offset");
        assert!(matches!(reader.read(47, 1), Err(LogError::OffsetOutOfRange { offset: 47, start: 0, end: 46 })));
        assert!(matches!(reader.read(-1, 1), Err(LogError::OffsetOutOfRange { offset: -1, .. })));
    }

    #[test]
    fn a_timestamp_is_looked_up_by_batch_headers() {
        let (dir, _log) = written(20);
        let reader = LogReader::new(dir.path());
        let found: Vec<i64> = [-1, 0, 7, 18, 19, 99].map(|time| reader.offset_after_time(time).expect("read")).to_vec();
        assert_eq!(found, [0, 2, 16, 38, 40, 40]);
    }

    #[test]
    fn every_torn_tail_is_the_end_and_every_file_stays_as_it_was() {
        let (dir, log) = written(3);
        log.close().expect("close");
        let whole = fs::read(dir.path().join(FIRST)).expect("read");
        let bounds: Vec<usize> = batches(&whole)
            .scan(0, |end, batch| {
                *end += batch.expect("whole").bytes().len();
                Some(*end)
            })
            .collect();
        for cut in 0..whole.len() {
            for zeroes in [0, 500] {
                let torn = [&whole[..cut], &vec![0; zeroes]].concat();
                fs::write(dir.path().join(FIRST), &torn).expect("write");
                let mut reader = LogReader::new(dir.path());
                // A batch that ends with zeroes is complete if zeroes follow.
                let count = bounds.iter().filter(|&&bound| torn.starts_with(&whole[..bound])).count();
                let expected: Vec<i64> = (0..count as i64).map(|at| at * 2).collect();
                assert_eq!(read_on(&mut reader, 0), expected, "cut at {cut}, {zeroes} zeroes");
                assert_eq!(reader.end().expect("end").offset, count as i64 * 2, "cut at {cut}, {zeroes} zeroes");
                assert_eq!(fs::read(dir.path().join(FIRST)).expect("read"), torn);
            }
        }
    }

    #[test]
    fn damage_is_an_error_except_at_the_end() {
        let (dir, log) = written(20);
        log.close().expect("close");
        let mut file = OpenOptions::new().write(true).open(dir.path().join(FIRST)).expect("open");
        file.seek(SeekFrom::Start(100)).expect("seek");
        file.write_all(b"!").expect("write");
        let mut reader = LogReader::new(dir.path());
        let error = reader.read(0, 1).expect_err("its checksum is wrong").to_string();
        assert!(error.contains(FIRST), "{error}");
        assert_eq!(reader.end().expect("end").offset, 40);
    }

    #[test]
    fn no_flipped_bit_is_returned_in_a_record() {
        let (dir, log) = written(3);
        log.close().expect("close");
        let path = dir.path().join(FIRST);
        let whole = fs::read(&path).expect("read");
        let known: Vec<&[u8]> = batches(&whole).map(|batch| batch.expect("whole").payload()).collect();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, &flipped).expect("write");
            let mut reader = LogReader::new(dir.path());
            let end = reader.end().expect("the last segment has an end");
            let read = reader.read(0, 1 << 20).unwrap_or_default();
            let found: Vec<&[u8]> = batches(&read).map(|batch| batch.expect("whole").payload()).collect();
            assert!(known.starts_with(&found), "byte {at}");
            assert!(end.offset >= 0, "byte {at}");
        }
    }

    #[test]
    fn a_batch_whose_offset_was_changed_is_not_served() {
        let (dir, log) = written(3);
        log.close().expect("close");
        let path = dir.path().join(FIRST);
        let whole = fs::read(&path).expect("read");
        let second = batches(&whole).next().expect("some").expect("whole").bytes().len();
        let mut changed = whole.clone();
        changed[second..second + 8].copy_from_slice(&1i64.to_be_bytes());
        fs::write(&path, &changed).expect("write");
        let mut reader = LogReader::new(dir.path());
        assert_eq!(offsets(&reader.read(0, 1 << 20).expect("the first is right")), [0]);
        assert_eq!(reader.end().expect("end").offset, 2);
    }

    #[test]
    fn a_log_that_was_truncated_and_rewritten_is_noticed() {
        let (dir, log) = written(4);
        let mut reader = LogReader::new(dir.path());
        assert_eq!(read_on(&mut reader, 0), [0, 2, 4, 6]);
        log.truncate_to(4, 0).expect("truncate");
        assert!(matches!(reader.read(8, 1), Err(LogError::OffsetOutOfRange { end: 4, .. })));
        append(&log, 50, 3);
        assert_eq!(read_on(&mut reader, 8), [8]);
    }

    #[test]
    fn an_empty_folder_is_an_empty_log() {
        let dir = tempdir().expect("temporary directory");
        let mut reader = LogReader::new(dir.path());
        assert_eq!((reader.start_offset().expect("list"), reader.read(0, 1).expect("read")), (None, Vec::new()));
        assert!(reader.read(1, 1).is_err());
        assert!(LogReader::new(&dir.path().join("absent")).end().is_err());
    }
}
