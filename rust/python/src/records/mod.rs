//! The record codec: batches to records or columns, and back.

mod batch;
pub(crate) mod columns;
mod encode;
mod record;
pub(crate) mod spares;

use klamm_records::RecordsError;
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

create_exception!(klamm._engine.records, RecordsDamagedError, PyValueError, "Bytes that are no record batches.");

/// Which records are decoded, and whether their CRC is checked.
#[derive(Clone, Copy)]
struct DecodeOptions {
    /// Records below this offset are skipped: a fetched batch may begin below the fetch offset.
    first_offset: i64,
    check_crc: bool,
    decompressed_bytes_max: usize,
}

impl DecodeOptions {
    /// All records; the CRC of the batch was checked if requested.
    fn all(decompressed_bytes_max: usize) -> Self {
        Self { first_offset: i64::MIN, check_crc: false, decompressed_bytes_max }
    }
}

/// Adds what this folder defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("RecordsDamagedError", module.py().get_type::<RecordsDamagedError>())?;
    module.add_class::<record::Record>()?;
    module.add_class::<batch::RecordBatch>()?;
    module.add_class::<columns::Buffer>()?;
    module.add_class::<columns::BytesColumn>()?;
    module.add_class::<columns::RecordColumns>()?;
    module.add_function(wrap_pyfunction!(batch::record_batches, module)?)?;
    module.add_function(wrap_pyfunction!(batch::decode_records, module)?)?;
    module.add_function(wrap_pyfunction!(batch::next_offset, module)?)?;
    module.add_function(wrap_pyfunction!(columns::decode_columns, module)?)?;
    module.add_function(wrap_pyfunction!(encode::encode_batch, module)?)?;
    module.add_function(wrap_pyfunction!(encode::encode_end_transaction_marker, module)?)
}

/// The exception of an error, with the protocol's code as its attribute `error_code`.
pub fn damaged(py: Python<'_>, error: &RecordsError) -> PyErr {
    let exception = RecordsDamagedError::new_err(error.to_string());
    match exception.value(py).setattr("error_code", error.error_code()) {
        Ok(()) => exception,
        Err(failure) => failure,
    }
}
