//! Arrow columns as rows to produce.

use klamm_client::{Row, Rows};
use klamm_records::RecordHeader;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrow::import::{BytesView, HeadersView, Imported, NumbersView};

/// The columns, owned until they are dropped. A column that is not given is null in every row.
pub struct Columns {
    partition: Option<i32>,
    partitions: Option<Imported>,
    keys: Option<Imported>,
    values: Option<Imported>,
    headers: Option<Imported>,
    timestamps: Option<Imported>,
}

impl Columns {
    pub fn new(
        partition: Option<&Bound<'_, PyAny>>,
        keys: Option<&Bound<'_, PyAny>>,
        values: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        timestamps: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let given =
            |object: Option<&Bound<'_, PyAny>>, what| object.map(|object| Imported::of(object, what)).transpose();
        let one = partition.and_then(|partition| partition.extract::<i32>().ok());
        Ok(Self {
            partition: one,
            partitions: if one.is_none() { given(partition, "partition")? } else { None },
            keys: given(keys, "keys")?,
            values: given(values, "values")?,
            headers: given(headers, "headers")?,
            timestamps: given(timestamps, "timestamps")?,
        })
    }

    /// The rows of these columns, which must be of one length.
    pub fn views(&self) -> PyResult<Views<'_>> {
        let columns = [&self.partitions, &self.keys, &self.values, &self.headers, &self.timestamps];
        let mut counts = columns.into_iter().flatten().map(|column| column.view().len());
        let count = counts.next().ok_or_else(|| PyValueError::new_err("there is no column: give keys or values"))?;
        if let Some(other) = counts.find(|other| *other != count) {
            return Err(PyValueError::new_err(format!("the columns have {count} and {other} rows: all need as many")));
        }
        Ok(Views {
            count,
            partition: self.partition,
            partitions: self.partitions.as_ref().map(|column| column.view().int32("partition")).transpose()?,
            keys: bytes(&self.keys, "keys")?,
            values: bytes(&self.values, "values")?,
            headers: self.headers.as_ref().map(|column| column.view().headers("headers")).transpose()?,
            timestamps: self.timestamps.as_ref().map(|column| column.view().times_ms("timestamps")).transpose()?,
        })
    }
}

fn bytes<'a>(column: &'a Option<Imported>, what: &str) -> PyResult<Option<BytesView<'a>>> {
    column.as_ref().map(|column| column.view().bytes(what)).transpose()
}

/// The columns as their types tell.
pub struct Views<'a> {
    count: usize,
    partition: Option<i32>,
    partitions: Option<NumbersView<'a, i32>>,
    keys: Option<BytesView<'a>>,
    values: Option<BytesView<'a>>,
    headers: Option<HeadersView<'a>>,
    timestamps: Option<NumbersView<'a, i64>>,
}

impl Rows for Views<'_> {
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn row(&self, at: usize) -> Row<'_> {
        let of_row = self.partitions.and_then(|column| column.get(at)).map(|partition| partition as i32);
        Row {
            partition: self.partition.or(of_row),
            timestamp_ms: self.timestamps.and_then(|column| column.get(at)),
            key: self.keys.and_then(|column| column.get(at)),
            value: self.values.and_then(|column| column.get(at)),
        }
    }

    fn headers<'a>(&'a self, at: usize, out: &mut Vec<RecordHeader<'a>>) {
        if let Some(column) = self.headers {
            out.extend(column.get(at).map(|(key, value)| RecordHeader { key, value }));
        }
    }
}
