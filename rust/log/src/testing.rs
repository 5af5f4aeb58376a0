//! Batches and folders for the tests of the log.

use std::path::Path;
use std::sync::Arc;

use klamm_records::header::{HEADER_LEN, compute_crc};

use super::{Log, LogConfig, LogContext, OpenAt, Recovery};

/// The batch that a test needs.
#[derive(Clone, Debug)]
pub struct BatchSpec {
    pub records: i32,
    pub value_bytes: usize,
    pub timestamp: i64,
    pub producer: Option<(i64, i16, i32)>,
    pub transactional: bool,
}

impl Default for BatchSpec {
    fn default() -> Self {
        Self { records: 1, value_bytes: 10, timestamp: 1000, producer: None, transactional: false }
    }
}

fn varint(out: &mut Vec<u8>, value: i64) {
    let mut value = ((value << 1) ^ (value >> 63)) as u64;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn record(offset_delta: i64, timestamp_delta: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
    let mut body = vec![0];
    varint(&mut body, timestamp_delta);
    varint(&mut body, offset_delta);
    for field in [key, value] {
        varint(&mut body, field.map_or(-1, |field| field.len() as i64));
        body.extend_from_slice(field.unwrap_or_default());
    }
    varint(&mut body, 0);
    let mut out = Vec::new();
    varint(&mut out, body.len() as i64);
    out.extend(body);
    out
}

/// Builds a batch of these records; the n-th has timestamp `timestamp + n`.
fn assemble(attributes: i16, timestamp: i64, producer: (i64, i16, i32), records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN];
    let last = records.len() as i32 - 1;
    out[16] = 2;
    out[21..23].copy_from_slice(&attributes.to_be_bytes());
    out[23..27].copy_from_slice(&last.to_be_bytes());
    out[27..35].copy_from_slice(&timestamp.to_be_bytes());
    out[35..43].copy_from_slice(&(timestamp + i64::from(last)).to_be_bytes());
    out[43..51].copy_from_slice(&producer.0.to_be_bytes());
    out[51..53].copy_from_slice(&producer.1.to_be_bytes());
    out[53..57].copy_from_slice(&producer.2.to_be_bytes());
    out[57..61].copy_from_slice(&(records.len() as i32).to_be_bytes());
    out.extend(records.concat());
    let length = (out.len() - 12) as i32;
    out[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = compute_crc(&out);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    out
}

pub fn batch(spec: &BatchSpec) -> Vec<u8> {
    let value = vec![b'v'; spec.value_bytes];
    let records: Vec<Vec<u8>> =
        (0..i64::from(spec.records)).map(|at| record(at, at, Some(b"k"), Some(&value))).collect();
    let attributes = if spec.transactional { 0x10 } else { 0 };
    assemble(attributes, spec.timestamp, spec.producer.unwrap_or((-1, -1, -1)), &records)
}

pub fn config() -> LogConfig {
    LogConfig { prepare_bytes: 0, ..LogConfig::default() }
}

pub fn create(dir: &Path, config: LogConfig) -> Log {
    Log::create(dir, "t", 0, Arc::new(config), &LogContext::new(64), 0, 0).expect("create")
}

pub fn open(dir: &Path, config: LogConfig, clean: bool, recovery_point: i64) -> (Log, Recovery) {
    let at = OpenAt { recovery_point, log_start_offset: 0, clean, has_gaps: false, ..OpenAt::default() };
    Log::open(dir, "t", 0, Arc::new(config), &LogContext::new(64), at, 0).expect("open")
}

/// Every byte of the log from `offset` on.
pub fn read_all(log: &mut Log, mut offset: i64) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let slice = log.read(offset, usize::MAX >> 1, i64::MAX, true).expect("read");
        if slice.len == 0 {
            return all;
        }
        let bytes = slice.read().expect("read");
        let mut at = 0;
        while let Some(header) = klamm_records::Header::at_start_of(&bytes[at..]) {
            offset = header.next_offset();
            at += header.size().expect("a whole batch");
        }
        all.extend(bytes);
    }
}
