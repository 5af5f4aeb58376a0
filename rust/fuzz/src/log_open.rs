//! Invariant: whatever a partition's directory contains, opening its log and querying it neither panics nor hangs,
//! and allocates little memory. After a start with recovery, every served byte belongs to a batch with a valid
//! checksum, and another record can be appended and is still there after the next start.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;
use klamm_log::{Log, LogConfig, LogContext, OpenAt, Origin};
use klamm_records::header::{Header, set_crc};
use klamm_records::{BatchBuilder, BatchFields, Compression, batches};

use crate::folder::Folder;

const FILES: [&str; 5] = [
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000003.snapshot",
    "00000000000000000000.log",
];

/// One byte of choices, one recovery point, then each file with its length in two bytes, the log last.
pub fn log_open(data: &[u8]) {
    let Some((&[choices, recovery_point], mut bytes)) = data.split_first_chunk() else { return };
    let folder = Folder::new();
    for name in FILES {
        let content = match bytes.split_first_chunk::<2>() {
            Some((len, rest)) if name != FILES[4] => {
                let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
                let (content, rest) = rest.split_at(len);
                bytes = rest;
                content
            }
            _ => bytes,
        };
        let mended = (name == FILES[4] && choices & 2 == 2).then(|| mended(content));
        let content = mended.as_deref().unwrap_or(content);
        if !content.is_empty() {
            fs::write(folder.0.join(name), content).expect("room for temporary files");
        }
    }
    // A log allocates chunks in addition to the bytes that it reads.
    crate::heap::bounded(data, 512 << 10, || ask(&folder.0, choices & 1 == 1, i64::from(recovery_point % 8)));
}

/// Fixes the checksums, to reach the code after their checks.
fn mended(log: &[u8]) -> Vec<u8> {
    let mut log = log.to_vec();
    let mut at = 0;
    while let Some(size) = Header::at_start_of(&log[at..]).and_then(|header| header.size()) {
        let Some(batch) = log.get_mut(at..at + size) else { break };
        batch[16] = 2;
        set_crc(batch);
        at += size;
    }
    log
}

fn open(path: &Path, clean: bool, recovery_point: i64) -> Result<Log, LogError> {
    let at = OpenAt { recovery_point, log_start_offset: 0, clean, has_gaps: false, ..OpenAt::default() };
    let config = Arc::new(LogConfig { index_interval_bytes: 64, ..LogConfig::default() });
    Log::open(path, "t", 0, config, &LogContext::new(8), at, 0).map(|(log, _)| log)
}

fn ask(path: &Path, clean: bool, recovery_point: i64) {
    let Ok(mut log) = open(path, clean, recovery_point) else { return };
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    assert!(start <= end);
    let mut offset = start;
    for _ in 0..1000 {
        let Ok(slice) = log.read(offset, 1 << 16, end, true) else { break };
        if slice.len == 0 {
            break;
        }
        let Ok(bytes) = slice.read() else { break };
        let before = offset;
        for batch in batches(&bytes) {
            let Ok(batch) = batch else { break };
            assert!(clean || recovery_point > 0 || batch.check_crc().is_ok(), "offset {offset}");
            offset = offset.max(batch.header().next_offset());
        }
        if offset == before {
            break;
        }
    }
    for timestamp in [i64::MIN, -1, 0, 1000, i64::MAX] {
        let _ = log.offset_for_timestamp(timestamp);
    }
    let _ = log.offset_of_max_timestamp();
    let _ = log.aborted_between(start, end);
    go_on(log, path, clean || recovery_point > 0);
}

fn go_on(mut log: Log, path: &Path, unchecked: bool) {
    let mut builder = BatchBuilder::new(BatchFields::default(), Compression::NONE);
    builder.append(0, None, Some(b"one more"), &[]).expect("small");
    let mut batch = builder.finish().expect("small");
    let end = log.log_end_offset();
    // A leader's epoch is never lower than that of a record in its log.
    let leader_epoch = log.latest_epoch().unwrap_or(0).max(0);
    let appended = log.append_as_leader(&mut batch, leader_epoch, 0, Origin::Client);
    drop(log);
    if unchecked {
        return;
    }
    assert_eq!(appended.expect("a checked log takes records").base_offset, end);
    let mut log = open(path, false, 0).expect("a checked log opens again");
    assert_eq!(log.log_end_offset(), end + 1);
    let slice = log.read(end, 1 << 16, end + 1, true).expect("read");
    assert_eq!(slice.read().expect("read"), batch);
}
