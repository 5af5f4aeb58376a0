//! Metadata records as Arrow columns: of one type with a column a field, or of any with their fields as JSON.

mod fields;
mod growing;
mod json;
mod overview;
mod secrets;

use std::sync::Arc;

use growing::{Values, int32, int64, times};
use klamm_metadata::frame::{self, RecordError};
use klamm_metadata::records;
use klamm_quorum::BATCH_BYTES_MAX;
use klamm_records::control::control_kind;
use klamm_records::{RecordsError, batches, records as records_of};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow::export::{Column, capsules};
use crate::metadata::records::MetadataRecordError;
use crate::records::damaged;

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<MetadataColumns>()?;
    module.add_function(wrap_pyfunction!(metadata_columns, module)?)?;
    module.add_function(wrap_pyfunction!(metadata_overview, module)?)
}

/// See `tools.pyi`.
#[pyclass(frozen, module = "klamm._engine.tools")]
pub struct MetadataColumns(Arc<Column>);

#[pymethods]
impl MetadataColumns {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // Only a hint: the protocol allows the producer of the array to keep its own types.
        drop(requested_schema);
        capsules(py, &self.0)
    }

    fn __len__(&self) -> usize {
        self.0.length
    }
}

/// What is wrong with bytes or with one record.
enum Failure {
    Bytes(RecordsError),
    Record { offset: i64, error: RecordError },
}

impl From<RecordsError> for Failure {
    fn from(error: RecordsError) -> Self {
        Self::Bytes(error)
    }
}

impl Failure {
    fn into_exception(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Bytes(error) => damaged(py, &error),
            Self::Record { offset, error } => {
                MetadataRecordError::new_err(format!("the record at offset {offset}: {error}"))
            }
        }
    }
}

/// Where a record stands, and what it is.
struct Found<'a> {
    offset: i64,
    batch: i64,
    epoch: i32,
    timestamp: i64,
    /// The type of one of raft's own.
    control: Option<i16>,
    key: Option<&'a [u8]>,
    value: &'a [u8],
}

/// Gives every record of whole batches, each batch checked.
fn for_each(data: &[u8], mut each: impl FnMut(&Found<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut scratch = Vec::new();
    for batch in batches(data) {
        let batch = batch?;
        batch.check()?;
        let header = batch.header();
        let (batch_offset, epoch, is_control) = (header.base_offset(), header.leader_epoch(), header.is_control());
        for record in records_of(batch, &mut scratch, BATCH_BYTES_MAX)? {
            let record = record?;
            each(&Found {
                offset: record.offset,
                batch: batch_offset,
                epoch,
                timestamp: record.timestamp,
                control: is_control.then(|| control_kind(record.key)).transpose()?,
                key: record.key,
                value: record.value.unwrap_or_default(),
            })?;
        }
    }
    Ok(())
}

/// The columns that every record has.
#[derive(Default)]
struct Places {
    offsets: Vec<i64>,
    batches: Vec<i64>,
    epochs: Vec<i32>,
    timestamps: Vec<i64>,
}

impl Places {
    fn push(&mut self, found: &Found<'_>) {
        self.offsets.push(found.offset);
        self.batches.push(found.batch);
        self.epochs.push(found.epoch);
        self.timestamps.push(found.timestamp);
    }

    fn len(&self) -> usize {
        self.offsets.len()
    }

    fn finish(self) -> Vec<Column> {
        vec![
            int64("offset", self.offsets),
            int64("batch", self.batches),
            int32("epoch", self.epochs),
            times("timestamp", self.timestamps),
        ]
    }
}

#[pyfunction]
fn metadata_columns(py: Python<'_>, data: &[u8], record_type: i16) -> PyResult<MetadataColumns> {
    if records::schema(record_type).is_none() {
        return Err(PyValueError::new_err(format!("there is no metadata record {record_type}")));
    }
    let columns = py.detach(|| columns_of(data, record_type));
    columns.map(|column| MetadataColumns(Arc::new(column))).map_err(|failure| failure.into_exception(py))
}

fn columns_of(data: &[u8], record_type: i16) -> Result<Column, Failure> {
    let schema = records::schema(record_type).expect("the caller has checked it").body;
    let mut places = Places::default();
    let mut versions = Vec::new();
    let mut fields: Vec<Values> = schema.fields.iter().map(|field| Values::new(&field.field_type)).collect();
    for_each(data, |found| {
        if found.control.is_some() {
            return Ok(());
        }
        let refused = |error: RecordError| Failure::Record { offset: found.offset, error };
        let (id, version, mut reader) = frame::read_frame(found.value).map_err(refused)?;
        if id != record_type {
            return Ok(());
        }
        let hidden = secrets::hidden_fields(found.value, id);
        fields::push(&mut fields, schema, &mut reader, version, hidden).map_err(|error| refused(error.into()))?;
        frame::check_end(&reader, schema.name).map_err(refused)?;
        places.push(found);
        versions.push(i32::from(version));
        Ok(())
    })?;
    let count = places.len();
    let mut columns = places.finish();
    columns.push(int32("version", versions));
    columns.extend(schema.fields.iter().zip(fields).map(|(field, values)| values.finish(field.name)));
    Ok(Column::rows("", count, columns))
}

#[pyfunction]
#[pyo3(signature = (data, *, types = None, controls = None, with_fields = true))]
fn metadata_overview(
    py: Python<'_>,
    data: &[u8],
    types: Option<Vec<i16>>,
    controls: Option<Vec<i16>>,
    with_fields: bool,
) -> PyResult<MetadataColumns> {
    let wanted = overview::Wanted { types, controls, with_fields };
    let columns = py.detach(|| overview::overview_of(data, &wanted));
    columns.map(|column| MetadataColumns(Arc::new(column))).map_err(|failure| failure.into_exception(py))
}
