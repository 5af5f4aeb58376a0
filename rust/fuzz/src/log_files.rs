//! Invariant: no bytes make a parser of the log's small files panic or allocate more than four times the input plus
//! 64 KiB, and parsed content survives a round trip through writing and parsing.

use klamm_log::checkpoint::{
    format_epochs, format_offsets, format_partition_metadata, parse_epochs, parse_offsets, parse_partition_metadata,
};
use klamm_log::names::{FileName, parse_partition_dir};
use klamm_log::producers::snapshot;

/// The first byte selects the file; a snapshot is also parsed with a valid checksum.
pub fn log_files(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    crate::heap::bounded(data, 0, || match kind % 6 {
        0 => check_snapshot(bytes),
        1 => check_snapshot(&mended(bytes)),
        kind => {
            if let Ok(text) = std::str::from_utf8(bytes) {
                check_text(kind, text);
            }
        }
    });
}

fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 10 {
        let count = ((bytes.len() - 10) / 46) as i32;
        bytes[..2].copy_from_slice(&1i16.to_be_bytes());
        bytes[6..10].copy_from_slice(&count.to_be_bytes());
        bytes.truncate(10 + 46 * count as usize);
        let crc = crc32c::crc32c(&bytes[6..]);
        bytes[2..6].copy_from_slice(&crc.to_be_bytes());
    }
    bytes
}

fn check_snapshot(bytes: &[u8]) {
    if let Ok(producers) = snapshot::decode(bytes) {
        assert_eq!(snapshot::decode(&snapshot::encode(&producers)), Ok(producers));
    }
}

fn check_text(kind: u8, text: &str) {
    match kind {
        2 => {
            if let Ok(offsets) = parse_offsets(text) {
                assert_eq!(parse_offsets(&format_offsets(&offsets)), Ok(offsets));
            }
        }
        3 => {
            if let Ok(epochs) = parse_epochs(text) {
                assert_eq!(parse_epochs(&format_epochs(&epochs)), Ok(epochs));
            }
        }
        4 => {
            if let Ok(id) = parse_partition_metadata(text) {
                assert_eq!(parse_partition_metadata(&format_partition_metadata(id)), Ok(id));
            }
        }
        _ => {
            if let Some(name) = FileName::parse(text) {
                assert_eq!(FileName::parse(&name.to_string()), Some(name));
            }
            let _ = parse_partition_dir(text);
        }
    }
}
