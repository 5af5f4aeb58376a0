//! Encodes rows of Python values to a batch.

use klamm_records::control::end_transaction_marker;
use klamm_records::{BatchBuilder, BatchFields, Codec, Compression, RecordHeader, RecordsError};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyString, PyTuple};

use super::damaged;
use super::record::Record;
use super::spares;

/// Bytes reserved for one record in advance, and the maximum for all records together.
const RECORD_BYTES_GUESS: usize = 128;
const BUFFER_MAX: usize = 1 << 20;

#[pyfunction]
#[pyo3(signature = (
    records, *, compression = "none", level = None, base_offset = 0, leader_epoch = -1, producer_id = -1,
    producer_epoch = -1, base_sequence = -1, transactional = false, log_append_time_ms = None,
))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword of the Python function")]
pub fn encode_batch<'py>(
    py: Python<'py>,
    records: &Bound<'py, PyAny>,
    compression: &str,
    level: Option<i32>,
    base_offset: i64,
    leader_epoch: i32,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    transactional: bool,
    log_append_time_ms: Option<i64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let fields = BatchFields {
        base_offset,
        leader_epoch,
        producer_id,
        producer_epoch,
        base_sequence,
        transactional,
        ..BatchFields::default()
    };
    let compression = parse_compression(compression, level)?;
    let expected = records.len().unwrap_or(0).saturating_mul(RECORD_BYTES_GUESS).min(BUFFER_MAX);
    let mut builder = BatchBuilder::with_buffer(fields, compression, spares::take(expected));
    if let Some(append_time) = log_append_time_ms {
        builder = builder.log_append_time(append_time);
    }
    for row in records.try_iter()? {
        append_row(&mut builder, &row?)?;
    }
    if builder.record_count() == 0 {
        return Err(PyValueError::new_err("a batch needs at least one record"));
    }
    let batch = py.detach(|| builder.finish()).map_err(|error| damaged(py, &error))?;
    let bytes = PyBytes::new(py, &batch);
    spares::give(batch);
    Ok(bytes)
}

#[pyfunction]
#[pyo3(signature = (producer_id, producer_epoch, *, commit, coordinator_epoch, timestamp_ms))]
pub fn encode_end_transaction_marker(
    py: Python<'_>,
    producer_id: i64,
    producer_epoch: i16,
    commit: bool,
    coordinator_epoch: i32,
    timestamp_ms: i64,
) -> PyResult<Bound<'_, PyBytes>> {
    let marker = end_transaction_marker(producer_id, producer_epoch, timestamp_ms, commit, coordinator_epoch);
    marker.map(|marker| PyBytes::new(py, &marker)).map_err(|error| damaged(py, &error))
}

fn parse_compression(name: &str, level: Option<i32>) -> PyResult<Compression> {
    let Some(codec) = Codec::from_name(name) else {
        return Err(PyValueError::new_err(format!("unknown codec '{name}': use none, gzip, snappy, lz4 or zstd")));
    };
    let Some(level) = level else { return Ok(Compression::of(codec)) };
    Compression::at_level(codec, level).ok_or_else(|| {
        let allowed = match codec.levels() {
            Some(levels) => format!("it has {} to {}, and {} by default", levels.min, levels.max, levels.default),
            None => "it has none".to_owned(),
        };
        PyValueError::new_err(format!("{name} has no level {level}: {allowed}"))
    })
}

/// A row is a tuple of timestamp, key, value and perhaps headers, or has them as attributes.
#[inline]
fn append_row(builder: &mut BatchBuilder, row: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = row.py();
    let Ok(tuple) = row.cast::<PyTuple>() else {
        return match row.cast::<Record>() {
            Ok(record) => append_record(builder, record.get(), py),
            Err(_) => append_attributes(builder, row),
        };
    };
    if !matches!(tuple.len(), 3 | 4) {
        return Err(PyTypeError::new_err(format!("a row has 3 or 4 elements, not {}", tuple.len())));
    }
    let headers = if tuple.len() == 4 { Some(tuple.get_item(3)?) } else { None };
    append(builder, &tuple.get_item(0)?, &tuple.get_item(1)?, &tuple.get_item(2)?, headers.as_ref())
}

fn append_record(builder: &mut BatchBuilder, record: &Record, py: Python<'_>) -> PyResult<()> {
    let timestamp = record.timestamp_ms().into_pyobject(py)?;
    append(builder, &timestamp, record.key(py), record.value(py), Some(record.headers(py).as_any()))
}

fn append_attributes(builder: &mut BatchBuilder, row: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = row.py();
    let (key, value) = (row.getattr(intern!(py, "key"))?, row.getattr(intern!(py, "value"))?);
    let timestamp = row.getattr(intern!(py, "timestamp_ms"))?;
    append(builder, &timestamp, &key, &value, Some(&row.getattr(intern!(py, "headers"))?))
}

#[inline]
fn optional_bytes<'a>(value: &'a Bound<'_, PyAny>, what: &str) -> PyResult<Option<&'a [u8]>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes()));
    }
    if value.is_none() {
        return Ok(None);
    }
    let name = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("the {what} of a record is bytes or None, not {name}")))
}

#[inline]
fn append(
    builder: &mut BatchBuilder,
    timestamp: &Bound<'_, PyAny>,
    key: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    headers: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let (key, value) = (optional_bytes(key, "key")?, optional_bytes(value, "value")?);
    let appended = match headers {
        Some(headers) if !headers.is_empty()? => {
            append_with_headers(builder, timestamp.extract()?, key, value, headers)?
        }
        _ => builder.append(timestamp.extract()?, key, value, &[]),
    };
    appended.map_err(|error| damaged(timestamp.py(), &error))
}

#[cold]
fn append_with_headers(
    builder: &mut BatchBuilder,
    timestamp: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &Bound<'_, PyAny>,
) -> PyResult<Result<(), RecordsError>> {
    let pairs = headers.try_iter()?.map(|pair| pair?.extract::<(Bound<'_, PyString>, Option<PyBackedBytes>)>());
    let pairs: Vec<_> = pairs.collect::<PyResult<_>>()?;
    let keys: Vec<PyBackedStr> = pairs.iter().map(|(key, _)| key.extract()).collect::<PyResult<_>>()?;
    let views: Vec<RecordHeader<'_>> = keys
        .iter()
        .zip(&pairs)
        .map(|(key, (_, value))| RecordHeader { key: key.as_bytes(), value: value.as_deref() })
        .collect();
    Ok(builder.append(timestamp, key, value, &views))
}
