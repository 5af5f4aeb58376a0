//! Invariant: whatever a metadata log's folder contains, reading it concurrently with a writer neither panics nor hangs,
//! allocates little memory and changes no file; it returns complete batches with valid checksums, each following the
//! previous one, and the first contains the requested offset. A node that opens the folder reads the same as a
//! concurrent reader.

use std::fs;
use std::path::Path;

use klamm_base::LogError;
use klamm_log::LogContext;
use klamm_quorum::{LogReader, OnLoss, QuorumLog, QuorumLogConfig};
use klamm_records::Batch;
use klamm_records::header::{Header, set_crc, set_position};

use crate::folder::Folder;

const STEPS_MAX: usize = 1000;
const PIECE_BYTES: usize = 1 << 12;

/// One byte of choices, two for the base offset of the second segment, then the batches.
pub fn metadata_log(data: &[u8]) {
    let Some((&[choices, high, low], bytes)) = data.split_first_chunk() else { return };
    let folder = Folder::new();
    let log = if choices & 1 == 1 { mended(bytes) } else { bytes.to_vec() };
    let split = usize::from(u16::from_be_bytes([high, low])).min(log.len());
    let split = if choices & 2 == 2 { boundary_before(&log, split) } else { split };
    write(&folder.0, 0, &log[..split]);
    if split < log.len() {
        write(&folder.0, next_offset(&log[..split]), &log[split..]);
    }
    let before = contents(&folder.0);
    // A reader allocates chunks of files, and its result.
    crate::heap::bounded(data, 256 << 10, || ask(&mut LogReader::new(&folder.0)));
    assert_eq!(contents(&folder.0), before, "a reader changes nothing");
    if choices & 4 == 4 {
        open_beside(&folder.0);
    }
}

/// Fixes checksums, offsets and epochs, to reach the code after their checks.
pub fn mended(log: &[u8]) -> Vec<u8> {
    let mut log = log.to_vec();
    let (mut at, mut offset) = (0, 0);
    while let Some(size) = Header::at_start_of(&log[at..]).and_then(|header| header.size()) {
        let Some(batch) = log.get_mut(at..at + size) else { break };
        batch[16] = 2;
        set_position(batch, offset, 1);
        set_crc(batch);
        offset = Header::at_start_of(batch).map_or(0, |header| header.next_offset().max(offset + 1));
        at += size;
    }
    log
}

fn boundary_before(log: &[u8], position: usize) -> usize {
    let mut at = 0;
    while let Some(size) = log.get(at..).and_then(Header::at_start_of).and_then(|header| header.size()) {
        if at + size > position {
            break;
        }
        at += size;
    }
    at
}

/// Segments do not overlap: their names are their base offsets.
fn next_offset(log: &[u8]) -> i64 {
    let (mut at, mut offset) = (0, 0);
    while let Some(header) = log.get(at..).and_then(Header::at_start_of) {
        let Some(size) = header.size().filter(|size| at + size <= log.len()) else { break };
        offset = offset.max(header.next_offset());
        at += size;
    }
    offset.max(1)
}

fn write(folder: &Path, base_offset: i64, bytes: &[u8]) {
    fs::write(folder.join(format!("{base_offset:020}.log")), bytes).expect("room for temporary files");
}

fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("the folder of this case").map(|entry| entry.expect("readable"));
    let name = |path: &Path| path.file_name().expect("of a file").to_string_lossy().into_owned();
    let mut found: Vec<_> =
        entries.map(|entry| (name(&entry.path()), fs::read(entry.path()).expect("readable"))).collect();
    found.sort();
    found
}

fn ask(reader: &mut LogReader) {
    let end = reader.end();
    for timestamp in [i64::MIN, 0, 1000, i64::MAX] {
        let _ = reader.offset_after_time(timestamp);
    }
    let _ = reader.snapshots();
    for offset in [i64::MIN, -1, 3, i64::MAX] {
        let _ = reader.read(offset, PIECE_BYTES);
    }
    let start = reader.start_offset().expect("the folder can be listed").unwrap_or(0);
    let read = read_on(start, |offset| reader.read(offset, PIECE_BYTES));
    if let (Ok(end), Some(read)) = (end, read) {
        assert!(read <= end.offset, "read up to {read}, and the log ends at {}", end.offset);
    }
}

/// Reads batch after batch; returns where that ended, unless it was by damage.
fn read_on(start: i64, mut read: impl FnMut(i64) -> Result<Vec<u8>, LogError>) -> Option<i64> {
    let mut offset = start;
    for _ in 0..STEPS_MAX {
        let bytes = read(offset).ok()?;
        if bytes.is_empty() {
            return Some(offset);
        }
        for (at, batch) in klamm_records::batches(&bytes).enumerate() {
            let batch = batch.expect("whole batches");
            batch.check_crc().expect("checked batches");
            let header = batch.header();
            assert!(header.last_offset() >= offset, "offset {offset} was requested");
            assert!(at == 0 || header.base_offset() >= offset, "batch at {} after {offset}", header.base_offset());
            offset = header.next_offset();
        }
    }
    None
}

fn open_beside(folder: &Path) {
    let config = QuorumLogConfig { segment_bytes: 1 << 20, segment_ms: i64::MAX, advice: None };
    let Ok((log, _)) = QuorumLog::open(folder, &config, &LogContext::volatile(8), OnLoss::Cut, 0) else { return };
    let mut reader = LogReader::new(folder);
    let mut offset = log.start_offset();
    for _ in 0..STEPS_MAX {
        if offset >= log.end_offset() {
            break;
        }
        let wanted = log.read(offset, 1).expect("an open log reads what it has");
        // A start verifies checksums, a reader also records: bytes with valid checksums and invalid records were
        // written by no broker.
        if Batch::at_start_of(&wanted).and_then(|batch| batch.check()).is_err() {
            break;
        }
        let found = reader.read(offset, 1).expect("and so does a reader beside it");
        assert_eq!(found, wanted, "at offset {offset}");
        offset = Header::at_start_of(&wanted).expect("a batch").next_offset();
    }
    let _ = log.close();
}
