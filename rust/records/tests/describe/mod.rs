//! Prints batches in the form of `tests/golden/records/KafkaRecords.java`.

use std::fmt::Write;

use klamm_records::{Batch, Header, RecordsError, batches, records};

const BYTES_MAX: usize = 16 * 1024 * 1024;

/// One line per batch and one per record.
pub fn describe(bytes: &[u8]) -> Result<String, RecordsError> {
    let mut out = String::new();
    let mut buffer = Vec::new();
    for batch in batches(bytes) {
        let batch: Batch<'_> = batch?;
        batch.check()?;
        describe_header(&mut out, &batch.header());
        for record in records(batch, &mut buffer, BYTES_MAX)? {
            let record = record?;
            let (key, value) = (show(record.key), show(record.value));
            write!(out, "record {} {} {key} {value}", record.offset, record.timestamp).expect("a string grows");
            for header in record.headers {
                let key = String::from_utf8_lossy(header.key);
                write!(out, " {key}={}", show(header.value)).expect("a string grows");
            }
            out.push('\n');
        }
    }
    Ok(out)
}

fn describe_header(out: &mut String, header: &Header<'_>) {
    let (first, last, epoch) = (header.base_offset(), header.last_offset(), header.leader_epoch());
    let (base_time, max_time) = (header.base_timestamp(), header.max_timestamp());
    let producer = (header.producer_id(), header.producer_epoch(), header.base_sequence());
    let attributes = header.attributes();
    let times = format!("{base_time} {max_time}");
    let producer = format!("{} {} {}", producer.0, producer.1, producer.2);
    let count = header.record_count();
    writeln!(out, "batch {first} {last} {epoch} {attributes} {times} {producer} {count}").expect("a string grows");
}

fn show(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "-".to_owned(),
        Some(bytes) if bytes.len() > 32 => format!("{}#{:08x}", bytes.len(), crc32c::crc32c(bytes)),
        Some(bytes) => bytes.iter().fold("x".to_owned(), |hex, byte| format!("{hex}{byte:02x}")),
    }
}
