//! `KafkaClient`: calls that block without the GIL, and look for signals meanwhile.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use klamm_client::{Client, ClientConfig, ClientError as Error, FetchRange, Rows, Slice};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use super::columns::{Limits, Wanted, decode};
use super::errors::{ClientError, client_error};
use super::fetched::FetchedSlice;
use super::rows::Columns;
use super::waiting::wait;
use crate::config::ConfigError;
use crate::runtime::SharedRuntime;

/// What one slice takes unless the caller says otherwise.
const SLICE_BYTES: usize = 64 << 20;

/// Topic, partition, offset, metadata.
type Committed = (Py<PyString>, i32, Option<i64>, String);

/// See `client.pyi`.
#[pyclass(frozen, module = "klamm._engine.client")]
pub struct KafkaClient {
    inner: ManuallyDrop<Inner>,
    process_id: u32,
    bootstrap: String,
    config: BTreeMap<String, String>,
}

/// Fields go in this order: connections before what drives them.
struct Inner {
    client: Arc<Client>,
    runtime: SharedRuntime,
}

impl Drop for KafkaClient {
    fn drop(&mut self) {
        // Connections and the poll that watches them are shared with the process that forked: they are its own to close.
        if self.process_id == std::process::id() {
            self.inner.client.close();
            // SAFETY: dropped once, here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.inner) }
        }
    }
}

impl KafkaClient {
    fn client(&self) -> PyResult<&Inner> {
        if self.process_id == std::process::id() {
            return Ok(&self.inner);
        }
        let why = "this client was made in another process: make one here, or send it there by pickle";
        Err(ClientError::new_err(why))
    }

    /// Waits for a call without the GIL.
    fn wait<T: Send>(&self, py: Python<'_>, call: impl Future<Output = Result<T, Error>> + Send) -> PyResult<T> {
        let outcome = wait(py, &self.client()?.runtime, call)?;
        outcome.map_err(|error| client_error(py, &error))
    }
}

#[pymethods]
impl KafkaClient {
    #[new]
    #[pyo3(signature = (bootstrap_servers, config = None))]
    fn new(py: Python<'_>, bootstrap_servers: String, config: Option<Bound<'_, PyAny>>) -> PyResult<Self> {
        let config: BTreeMap<String, String> = match config {
            Some(config) => py.get_type::<PyDict>().call1((config,))?.extract()?,
            None => BTreeMap::new(),
        };
        let parsed = ClientConfig::new(&bootstrap_servers, &config);
        let parsed = parsed.map_err(|error| ConfigError::new_err(error.to_string()))?;
        let runtime = SharedRuntime::get()?;
        let inner = ManuallyDrop::new(Inner { client: Arc::new(Client::new(parsed)), runtime });
        Ok(Self { inner, process_id: std::process::id(), bootstrap: bootstrap_servers, config })
    }

    #[pyo3(signature = (*, include_internal = false))]
    fn topics(&self, py: Python<'_>, include_internal: bool) -> PyResult<Vec<String>> {
        let topics = self.wait(py, self.client()?.client.topics())?;
        let wanted = topics.into_iter().filter(|(_, is_internal)| include_internal || !is_internal);
        Ok(wanted.map(|(name, _)| name).collect())
    }

    fn partitions(&self, py: Python<'_>, topic: &str) -> PyResult<Vec<i32>> {
        self.wait(py, self.client()?.client.partitions(topic))
    }

    fn topic_id(&self, py: Python<'_>, topic: &str) -> PyResult<Option<String>> {
        let found = self.wait(py, self.client()?.client.topic_id(topic))?;
        Ok(found.map(|id| id.to_string()))
    }

    fn offsets(&self, py: Python<'_>, topic: &str, partitions: BTreeMap<i32, i64>) -> PyResult<BTreeMap<i32, i64>> {
        let found = self.wait(py, self.client()?.client.offsets(topic, &partitions))?;
        Ok(found.into_iter().map(|(partition, found)| (partition, found.offset)).collect())
    }

    #[pyo3(signature = (topic, partition, start, end, *, columns, max_records = None, max_bytes = None, topic_id = None))]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of the Python method")]
    fn fetch(
        &self,
        py: Python<'_>,
        topic: String,
        partition: i32,
        start: i64,
        end: i64,
        columns: Vec<String>,
        max_records: Option<usize>,
        max_bytes: Option<usize>,
        topic_id: Option<&str>,
    ) -> PyResult<FetchedSlice> {
        let wanted = Wanted::of(&columns).map_err(PyValueError::new_err)?;
        let limits = Limits { records: max_records.unwrap_or(usize::MAX), bytes: max_bytes.unwrap_or(SLICE_BYTES) };
        if limits.records == 0 || limits.bytes == 0 {
            return Err(PyValueError::new_err("max_records and max_bytes must be at least 1"));
        }
        let client = &self.client()?.client;
        let topic_id = topic_id.map(str::parse).transpose();
        let topic_id = topic_id.map_err(|error| PyValueError::new_err(format!("topic_id: {error}")))?;
        let range = FetchRange { topic, partition, start, end, topic_id };
        let slice = self.wait(py, client.fetch(&range))?;
        py.detach(|| decoded(client, &range, slice, &wanted, limits)).map_err(|error| client_error(py, &error))
    }

    #[pyo3(signature = (topic, partition, keys, values, headers = None, timestamps = None))]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of the Python method")]
    fn produce(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: Option<&Bound<'_, PyAny>>,
        keys: Option<&Bound<'_, PyAny>>,
        values: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        timestamps: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let columns = Columns::new(partition, keys, values, headers, timestamps)?;
        let rows = columns.views()?;
        let client = &self.client()?.client;
        let partitions = self.wait(py, client.begin_produce(topic))?;
        let topic: Arc<str> = topic.into();
        let mut at = 0;
        while at < rows.count() {
            let taken = py.detach(|| client.produce(&topic, &partitions, &rows, at));
            at = taken.map_err(|error| client_error(py, &error))?;
            self.wait(py, client.room())?;
        }
        Ok(())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, self.client()?.client.flush())
    }

    fn init_transactions(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, self.client()?.client.init_transactions())
    }

    fn begin_transaction(&self, py: Python<'_>) -> PyResult<()> {
        self.client()?.client.begin_transaction().map_err(|error| client_error(py, &error))
    }

    fn check_transactions(&self, py: Python<'_>, transactional_id: &str) -> PyResult<()> {
        self.wait(py, self.client()?.client.check_transactions(transactional_id))
    }

    fn identity(&self) -> PyResult<Option<(i64, i16)>> {
        Ok(self.client()?.client.identity())
    }

    #[pyo3(signature = (transactional_id, producer_id, producer_epoch, *, commit))]
    fn end_transaction_of(
        &self,
        py: Python<'_>,
        transactional_id: &str,
        producer_id: i64,
        producer_epoch: i16,
        commit: bool,
    ) -> PyResult<()> {
        let identity = (producer_id, producer_epoch);
        self.wait(py, self.client()?.client.end_transaction_of(transactional_id, identity, commit))
    }

    #[pyo3(signature = (group, topic = None, *, stable = true))]
    fn committed(&self, py: Python<'_>, group: &str, topic: Option<&str>, stable: bool) -> PyResult<Vec<Committed>> {
        let found = self.wait(py, self.client()?.client.committed(group, topic, stable))?;
        // One text for all partitions of a topic, as the answer has it.
        let rows = found.chunk_by(|one, other| one.topic == other.topic).flat_map(|of_topic| {
            let topic = PyString::new(py, &of_topic[0].topic).unbind();
            of_topic.iter().map(move |one| (topic.clone_ref(py), one.partition, one.offset, one.metadata.clone()))
        });
        Ok(rows.collect())
    }

    #[pyo3(signature = (group, offsets, metadata = ""))]
    fn add_offsets(
        &self,
        py: Python<'_>,
        group: &str,
        offsets: BTreeMap<String, BTreeMap<i32, i64>>,
        metadata: &str,
    ) -> PyResult<()> {
        let rows = |(topic, of_topic): (String, BTreeMap<i32, i64>)| {
            of_topic.into_iter().map(move |(partition, offset)| (topic.clone(), partition, offset))
        };
        let offsets: Vec<_> = offsets.into_iter().flat_map(rows).collect();
        self.wait(py, self.client()?.client.add_offsets(group, &offsets, metadata))
    }

    fn commit_transaction(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, self.client()?.client.commit_transaction())
    }

    fn abort_transaction(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, self.client()?.client.abort_transaction())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.client()?;
        py.detach(|| inner.client.close());
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (String, BTreeMap<String, String>)) {
        let this = slf.get();
        (slf.get_type(), (this.bootstrap.clone(), this.config.clone()))
    }

    fn __repr__(&self) -> String {
        format!("<KafkaClient of {}>", self.bootstrap)
    }
}

fn decoded(
    client: &Client,
    range: &FetchRange,
    mut slice: Slice,
    wanted: &[Wanted],
    limits: Limits,
) -> Result<FetchedSlice, Error> {
    let columns = decode(&mut slice, wanted, limits, &range.topic, range.partition);
    let columns = columns.map_err(|source| Error::Damaged {
        topic: range.topic.clone(),
        partition: range.partition,
        offset: slice.next_offset(),
        source,
    })?;
    let (next_offset, watermarks) = (slice.next_offset(), slice.watermarks);
    client.keep(range, slice);
    Ok(FetchedSlice { columns, next_offset, watermarks })
}
