//! Decodes the records of a slice to the requested columns only.

use std::sync::Arc;

use klamm_client::Slice;
use klamm_records::{Headers, Record, RecordsError, records};

use crate::arrow::export::Column;
use crate::records::columns::{Elements, GrowingBytes, Room, Validity, reserve_ahead};

/// A column that can be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Key,
    Value,
    Topic,
    Partition,
    Offset,
    Timestamp,
    TimestampType,
    Headers,
}

/// Names as Spark's Kafka source has them.
const NAMES: [(&str, Wanted); 8] = [
    ("key", Wanted::Key),
    ("value", Wanted::Value),
    ("topic", Wanted::Topic),
    ("partition", Wanted::Partition),
    ("offset", Wanted::Offset),
    ("timestamp", Wanted::Timestamp),
    ("timestampType", Wanted::TimestampType),
    ("headers", Wanted::Headers),
];

impl Wanted {
    /// The columns with these names, or an error that names the unknown one.
    pub fn of(names: &[String]) -> Result<Vec<Self>, String> {
        let mut wanted = Vec::new();
        for name in names {
            let Some((_, column)) = NAMES.iter().find(|(known, _)| known == name) else {
                let known = NAMES.map(|(known, _)| known).join(", ");
                return Err(format!("there is no column '{name}'; there are: {known}"));
            };
            if wanted.contains(column) {
                return Err(format!("column '{name}' is asked for twice"));
            }
            wanted.push(*column);
        }
        Ok(wanted)
    }
}

/// The limits of one call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub records: usize,
    /// Total size of all columns in bytes; the record that reaches it is the last.
    pub bytes: usize,
}

/// The columns under construction.
struct Growing<'a> {
    wanted: &'a [Wanted],
    rows: usize,
    bytes: usize,
    has: Has,
    keys: GrowingBytes,
    values: GrowingBytes,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    timestamp_types: Vec<i32>,
    header_offsets: Vec<i32>,
    header_validity: Validity,
    header_keys: GrowingBytes,
    header_values: GrowingBytes,
}

/// The columns of [`Growing::wanted`] as flags.
#[derive(Clone, Copy)]
struct Has {
    key: bool,
    value: bool,
    offset: bool,
    timestamp: bool,
    timestamp_type: bool,
    headers: bool,
}

/// The approximate size of a row without its key, value and headers, in bytes.
const ROW_BYTES: usize = 32;
/// Bytes reserved for a key in advance.
const KEY_BYTES_GUESS: usize = 12;
/// The maximum size reserved for values in advance.
const AHEAD_BYTES_MAX: usize = 8 << 20;
/// The minimum size of records for which that is done.
const AHEAD_FROM_BYTES: usize = 256;

/// Decodes from the slice's position up to a limit, and moves the position past the last record.
///
/// Damaged bytes after intact records end the columns; damaged bytes at the start are an error.
pub fn decode(
    slice: &mut Slice,
    wanted: &[Wanted],
    limits: Limits,
    topic: &str,
    partition: i32,
) -> Result<Arc<Column>, RecordsError> {
    let mut growing = Growing::new(wanted);
    let bytes = slice.bytes();
    let mut window = Vec::new();
    while growing.is_within(limits) {
        let more = match slice.next_batch(&bytes) {
            Ok(Some(data)) => growing.take_in(slice, &data, &mut window, limits),
            Ok(None) => break,
            Err(error) => Err(error),
        };
        match more {
            Ok(()) => {}
            Err(_) if growing.rows > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Arc::new(growing.finish(topic, partition)))
}

impl<'a> Growing<'a> {
    fn new(wanted: &'a [Wanted]) -> Self {
        let has = |column| wanted.contains(&column);
        Self {
            wanted,
            rows: 0,
            bytes: 0,
            has: Has {
                key: has(Wanted::Key),
                value: has(Wanted::Value),
                offset: has(Wanted::Offset),
                timestamp: has(Wanted::Timestamp),
                timestamp_type: has(Wanted::TimestampType),
                headers: has(Wanted::Headers),
            },
            keys: GrowingBytes::new(),
            values: GrowingBytes::new(),
            offsets: Vec::new(),
            timestamps: Vec::new(),
            timestamp_types: Vec::new(),
            header_offsets: vec![0],
            header_validity: Validity::default(),
            header_keys: GrowingBytes::new(),
            header_values: GrowingBytes::new(),
        }
    }

    fn is_within(&self, limits: Limits) -> bool {
        self.rows < limits.records && self.bytes < limits.bytes
    }

    fn take_in(
        &mut self,
        slice: &mut Slice,
        data: &klamm_client::slice::DataBatch<'_>,
        window: &mut Vec<u8>,
        limits: Limits,
    ) -> Result<(), RecordsError> {
        let records = records(data.batch, window, slice.decompressed_bytes_max())?;
        let (count, bytes) = (records.size_hint().1.unwrap_or(0), records.remaining_bytes());
        // Small records are written faster to memory that was just copied, because it is in the processor's caches.
        let is_large = bytes / AHEAD_FROM_BYTES >= count;
        let likely = if is_large { slice.batches_left_like(data.batch) } else { 1 };
        self.reserve(count, bytes, likely, limits)?;
        let timestamp_type = i32::from(data.batch.header().is_log_append_time());
        for record in records {
            let record = record?;
            if record.offset < data.first {
                continue;
            }
            if record.offset >= data.end {
                slice.stop_at(data.end);
                return Ok(());
            }
            if !self.is_within(limits) {
                slice.stop_at(record.offset);
                return Ok(());
            }
            self.push(&record, timestamp_type);
            slice.stop_at(record.offset + 1);
        }
        slice.passed(data.batch);
        Ok(())
    }

    /// Reserves room for a batch. If that needs more memory, it reserves room for `likely` batches of this kind at once:
    /// columns that grow step by step are copied more often than they are filled.
    ///
    /// No column may exceed 32-bit offsets.
    fn reserve(&mut self, records: usize, bytes: usize, likely: usize, limits: Limits) -> Result<(), RecordsError> {
        let size = self.bytes + bytes;
        if size > i32::MAX as usize {
            return Err(RecordsError::TooLargeToBuild { what: "a column", size });
        }
        let left = Limits { records: limits.records - self.rows, bytes: limits.bytes.min(AHEAD_BYTES_MAX) };
        let bytes = Room::new(bytes.min(limits.bytes), likely, left.bytes);
        // A record takes at least one byte, whatever number of records a batch claims.
        let rows = Room::new(records.min(left.records).min(bytes.now), likely, left.records.min(bytes.likely));
        if self.has.key {
            let keys = |rows: usize, bytes: usize| bytes.min(rows * KEY_BYTES_GUESS);
            let keys = Room { now: keys(rows.now, bytes.now), likely: keys(rows.likely, bytes.likely) };
            self.keys.reserve_ahead(rows, keys);
        }
        if self.has.value {
            self.values.reserve_ahead(rows, bytes);
        }
        if self.has.offset {
            reserve_ahead(&mut self.offsets, rows);
        }
        if self.has.timestamp {
            reserve_ahead(&mut self.timestamps, rows);
        }
        if self.has.timestamp_type {
            reserve_ahead(&mut self.timestamp_types, rows);
        }
        Ok(())
    }

    #[inline(always)]
    fn push(&mut self, record: &Record<'_>, timestamp_type: i32) {
        self.bytes += ROW_BYTES;
        if self.has.key {
            self.bytes += record.key.map_or(0, <[u8]>::len);
            self.keys.push(record.key);
        }
        if self.has.value {
            self.bytes += record.value.map_or(0, <[u8]>::len);
            self.values.push(record.value);
        }
        if self.has.offset {
            self.offsets.push(record.offset);
        }
        if self.has.timestamp {
            self.timestamps.push(record.timestamp.saturating_mul(1000));
        }
        if self.has.timestamp_type {
            self.timestamp_types.push(timestamp_type);
        }
        if self.has.headers {
            self.push_headers(record.headers);
        }
        self.rows += 1;
    }

    fn push_headers(&mut self, headers: Headers<'_>) {
        self.header_validity.push(self.rows, headers.len() > 0);
        for header in headers {
            // The protocol requires text, but brokers do not check what a producer sends.
            let key = String::from_utf8_lossy(header.key);
            self.bytes += key.len() + header.value.map_or(0, <[u8]>::len);
            self.header_keys.push(Some(key.as_bytes()));
            self.header_values.push(header.value);
        }
        self.header_offsets.push(self.header_keys.len() as i32);
    }

    fn finish(mut self, topic: &str, partition: i32) -> Column {
        let wanted = self.wanted;
        let columns = wanted.iter().map(|column| self.column(*column, topic, partition)).collect();
        Column::rows("", self.rows, columns)
    }

    fn column(&mut self, column: Wanted, topic: &str, partition: i32) -> Column {
        let rows = self.rows;
        let take = |bytes: &mut GrowingBytes| std::mem::replace(bytes, GrowingBytes::new());
        match column {
            Wanted::Key => Column::bytes("key", "z", true, take(&mut self.keys)),
            Wanted::Value => Column::bytes("value", "z", true, take(&mut self.values)),
            Wanted::Topic => Column::bytes("topic", "u", false, repeated(topic, rows)),
            Wanted::Partition => Column::numbers("partition", "i", rows, Elements::Int32(vec![partition; rows])),
            Wanted::Offset => Column::numbers("offset", "l", rows, Elements::Int64(std::mem::take(&mut self.offsets))),
            Wanted::Timestamp => {
                Column::numbers("timestamp", "tsu:UTC", rows, Elements::Int64(std::mem::take(&mut self.timestamps)))
            }
            Wanted::TimestampType => {
                let types = Elements::Int32(std::mem::take(&mut self.timestamp_types));
                Column::numbers("timestampType", "i", rows, types)
            }
            Wanted::Headers => self.headers(),
        }
    }

    fn headers(&mut self) -> Column {
        let keys = std::mem::replace(&mut self.header_keys, GrowingBytes::new());
        let values = std::mem::replace(&mut self.header_values, GrowingBytes::new());
        let count = keys.len();
        let pair = vec![Column::bytes("key", "u", false, keys), Column::bytes("value", "z", true, values)];
        let validity = std::mem::take(&mut self.header_validity);
        let offsets = Elements::Int32(std::mem::take(&mut self.header_offsets));
        Column {
            name: "headers".into(),
            format: "+l".into(),
            is_nullable: true,
            length: self.rows,
            null_count: validity.null_count,
            buffers: vec![validity.buffer(), Some(offsets)],
            children: vec![Column::rows("item", count, pair)],
        }
    }
}

fn repeated(text: &str, rows: usize) -> GrowingBytes {
    let mut column = GrowingBytes::new();
    column.reserve(rows, rows * text.len());
    for _ in 0..rows {
        column.push(Some(text.as_bytes()));
    }
    column
}
