//! `Engine`: one node's log directories, partitions and network.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_engine::appender::OwnBatch;
use klamm_engine::engine::Engine as NodeEngine;
use klamm_log::Origin;
use klamm_net::{Event, ListenerLimits, Note, Reply, SupportedFeatures};
use klamm_records::control::{control_kind, end_transaction_marker};
use klamm_records::{BatchBuilder, BatchFields, Codec, Compression, RecordsError, batches, records};
use klamm_replica::{OffsetQuery, Series, Size, Unassigned};
use klamm_wire::api_versions::ApiRange;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use super::boot::{self, ListenerRow};
use super::distribution::Distribution;
use super::events::event;
use super::log_load::{LogLoad, Source};
use crate::config::ConfigError;
use crate::id::Id;
use crate::metadata::image::Image;
use crate::metadata::records::extract_uuid;
use crate::runtime::SharedRuntime;

/// A part of a load ends with the read after which it has at least this many bytes.
const LOADED_PART_BYTES: usize = 32 << 20;
/// Most bytes that the records of a batch in a log of this node take.
pub(super) const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;

/// See `node.pyi`.
#[pyclass(frozen, module = "klamm._engine.node")]
pub struct Engine {
    pub engine: NodeEngine,
    runtime: Mutex<Option<SharedRuntime>>,
    /// Makes the exception of a code and a message.
    partition_error: Py<PyAny>,
}

pub(super) type NullableBytes<'py> = Option<Bound<'py, PyBytes>>;
/// Key and value of each record.
type CoordinatorRecords<'py> = Vec<(NullableBytes<'py>, NullableBytes<'py>)>;

/// Leader epoch and number of a series of appends.
type SeriesRow = Option<(i32, u64)>;

/// Partition, token, series and records of a batch; id and epoch of the producer in whose transaction it is.
#[derive(FromPyObject)]
enum CoordinatorBatch<'py> {
    Plain(i32, u64, SeriesRow, CoordinatorRecords<'py>),
    InTransaction(i32, u64, SeriesRow, CoordinatorRecords<'py>, (i64, i16)),
}

/// Topic id, partition, token, series, producer id and epoch, whether it commits, coordinator epoch, transaction version.
type MarkerRow<'py> = (Bound<'py, PyAny>, i32, u64, SeriesRow, i64, i16, bool, i32, i8);
type ProducerRow = (i64, i32, i32, i64, i32, i64);
/// Path, directory id, why it is out of use, whether it is cordoned, and its partitions with their sizes.
type DirRow = (PathBuf, Id, Option<String>, bool, Vec<Size>);
pub(super) type RecordRow<'py> = (i64, NullableBytes<'py>, NullableBytes<'py>, i64, bool);

fn series_of(row: SeriesRow) -> Option<Series> {
    row.map(|(leader_epoch, number)| Series { leader_epoch, number })
}

fn build(
    records: &CoordinatorRecords<'_>,
    fields: BatchFields,
    timestamp_ms: i64,
    codec: Codec,
) -> Result<Vec<u8>, RecordsError> {
    let mut builder = BatchBuilder::new(fields, Compression::of(codec));
    for (key, value) in records {
        let [key, value] = [key, value].map(|it| it.as_ref().map(|bytes| bytes.as_bytes()));
        builder.append(timestamp_ms, key, value, &[])?;
    }
    builder.finish()
}

#[pymethods]
impl Engine {
    #[getter]
    fn event_fd(&self) -> i32 {
        self.engine.server().event_fd().unwrap_or(-1)
    }

    fn drain<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyList>> {
        let (rows, image) = (PyList::empty(py), self.engine.replicas().image());
        for found in self.engine.server().drain(most) {
            let handle = if let Event::Request(request) = &found { Some(request.handle) } else { None };
            match (event(py, found, &image), handle) {
                (Ok(row), _) => rows.append(row)?,
                // No memory for the request: its connection ends, and the other events are given all the same.
                (Err(_), Some(handle)) => self.engine.server().answer_all(std::iter::once((handle, Reply::Close))),
                (Err(error), None) => return Err(error),
            }
        }
        Ok(rows)
    }

    fn listen(&self, listener: ListenerRow) -> PyResult<(String, u16)> {
        let options = boot::listener(listener);
        let address = self.engine.server().listen(&options).map_err(|error| {
            let place = format!("cannot listen on {}:{}: {error}", options.host, options.port);
            PyOSError::new_err((error.raw_os_error(), place))
        })?;
        Ok((address.ip().to_string(), address.port()))
    }

    fn close_listener(&self, name: &str) -> bool {
        self.engine.server().close_listener(name)
    }

    #[pyo3(signature = (*, most, creation_rate, inter_broker))]
    fn set_listener_limits(
        &self,
        most: HashMap<String, usize>,
        creation_rate: HashMap<String, usize>,
        inter_broker: Option<String>,
    ) {
        self.engine.server().set_listener_limits(ListenerLimits { most, creation_rate, inter_broker });
    }

    fn open(&self, listener: &str) -> bool {
        self.engine.server().open(listener)
    }

    #[pyo3(signature = (ranges, kraft_version))]
    fn set_supported_features(&self, ranges: Vec<(String, i16, i16)>, kraft_version: i16) {
        self.engine.server().set_supported_features(SupportedFeatures { ranges, kraft_version });
    }

    fn set_controller_apis(&self, apis: Option<HashMap<i16, (i16, i16)>>) {
        let range = |(key, (version_min, version_max))| ApiRange { key, version_min, version_max };
        self.engine.server().set_controller_apis(apis.map(|apis| apis.into_iter().map(range).collect()));
    }

    fn answer(&self, py: Python<'_>, answers: Vec<(u64, Option<Bound<'_, PyBytes>>)>) {
        let reply = |body: Option<Bound<'_, PyBytes>>| {
            body.map_or(Reply::Close, |body| Reply::Body(Bytes::copy_from_slice(body.as_bytes())))
        };
        let answers: Vec<_> = answers.into_iter().map(|(handle, body)| (handle, reply(body))).collect();
        py.detach(|| self.engine.server().answer_all(answers.into_iter()));
    }

    fn on_verified(&self, py: Python<'_>, verified: Vec<(u64, Vec<i16>)>) {
        let verified = verified.into_iter().map(|(handle, codes)| (handle, codes.into_iter().map(ErrorCode).collect()));
        py.detach(|| self.engine.server().on_verified(verified));
    }

    fn share_states_answered(&self, py: Python<'_>, answers: Vec<(u64, i16, PyBackedBytes)>) {
        // A share partition that is loaded may look up an offset by its time.
        py.detach(|| {
            for (request_id, code, body) in answers {
                self.engine.server().share_state_answered(request_id, ErrorCode(code), &body);
            }
        });
    }

    #[getter]
    fn is_request_time_limited(&self) -> bool {
        self.engine.server().is_time_limited()
    }

    fn note_handler_time(&self, handle: u64, ns: u64) {
        self.engine.server().note(handle, Note { handler_time: Duration::from_nanos(ns), ..Note::default() });
    }

    #[getter]
    fn is_measuring_requests(&self) -> bool {
        self.engine.server().request_metrics().is_on()
    }

    fn note_error_codes(&self, handle: u64, counts: Vec<(i16, u64)>) {
        let errors = counts.into_iter().map(|(code, count)| (ErrorCode(code), count)).collect();
        self.engine.server().note(handle, Note { errors, ..Note::default() });
    }

    fn publish(&self, py: Python<'_>, image: &Image) -> Vec<(Id, Id, i32)> {
        let image = image.0.clone();
        let unassigned = py.detach(|| self.engine.publish(image));
        unassigned.into_iter().map(|at| (Id(at.directory_id), Id(at.topic_id), at.partition)).collect()
    }

    fn must_recover(&self, topic_id: &Bound<'_, PyAny>, partition: i32) -> PyResult<bool> {
        Ok(self.engine.replicas().must_recover(extract_uuid(topic_id)?, partition))
    }

    fn open_partition(&self, py: Python<'_>, topic_id: &Bound<'_, PyAny>, partition: i32) -> PyResult<()> {
        self.partition(py, topic_id, partition).map(drop)
    }

    fn open_the_rest(&self, inter_broker_listener: String) -> PyResult<()> {
        Ok(self.engine.open_the_rest(inter_broker_listener)?)
    }

    fn alter_partition_request<'py>(&self, py: Python<'py>, broker_epoch: i64) -> Option<Bound<'py, PyBytes>> {
        let body = py.detach(|| self.engine.isr().next_request(broker_epoch))?;
        Some(PyBytes::new(py, &body))
    }

    fn on_alter_partition_response(&self, py: Python<'_>, body: Option<&[u8]>) {
        py.detach(|| self.engine.isr().on_response(body));
    }

    fn set_settings(&self, py: Python<'_>, settings: HashMap<String, String>) -> PyResult<()> {
        let settings = Settings::new(settings).map_err(|error| ConfigError::new_err(error.to_string()))?;
        py.detach(|| self.engine.set_settings(settings));
        Ok(())
    }

    #[pyo3(signature = (topic_id, batches, timestamp_ms, codec=0))]
    fn append(
        &self,
        topic_id: &Bound<'_, PyAny>,
        batches: Vec<CoordinatorBatch<'_>>,
        timestamp_ms: i64,
        codec: i16,
    ) -> PyResult<()> {
        let codec =
            Codec::from_id(codec).ok_or_else(|| PyValueError::new_err(format!("no codec has the id {codec}")))?;
        let topic = extract_uuid(topic_id)?;
        let mut built = Vec::with_capacity(batches.len());
        for row in batches {
            let (index, token, series, records, fields) = match row {
                CoordinatorBatch::Plain(index, token, series, records) => {
                    (index, token, series, records, BatchFields::default())
                }
                CoordinatorBatch::InTransaction(index, token, series, records, (producer_id, producer_epoch)) => {
                    let fields = BatchFields {
                        producer_id,
                        producer_epoch,
                        base_sequence: 0,
                        transactional: true,
                        ..BatchFields::default()
                    };
                    (index, token, series, records, fields)
                }
            };
            let batch = build(&records, fields, timestamp_ms, codec).map_err(|error| ErrorCode(error.error_code()));
            let (origin, series) = (Origin::Coordinator, series_of(series));
            built.push(OwnBatch { topic, index, batch, origin, needs_min_isr: true, series, token });
        }
        Ok(self.engine.append(built)?)
    }

    #[pyo3(signature = (markers, timestamp_ms, *, needs_min_isr=true))]
    fn append_markers(&self, markers: Vec<MarkerRow<'_>>, timestamp_ms: i64, needs_min_isr: bool) -> PyResult<()> {
        let mut built = Vec::with_capacity(markers.len());
        for row in markers {
            let (topic, index, token, series, producer_id, producer_epoch, commits, coordinator_epoch, version) = row;
            let topic = extract_uuid(&topic)?;
            let batch = end_transaction_marker(producer_id, producer_epoch, timestamp_ms, commits, coordinator_epoch)
                .map_err(|error| ErrorCode(error.error_code()));
            let (origin, series) = (Origin::Markers { transaction_version: version }, series_of(series));
            built.push(OwnBatch { topic, index, batch, origin, needs_min_isr, series, token });
        }
        Ok(self.engine.append(built)?)
    }

    fn read_records<'py>(
        &self,
        py: Python<'py>,
        topic_id: &Bound<'_, PyAny>,
        partition: i32,
        offset: i64,
        max_bytes: usize,
    ) -> PyResult<(i64, Bound<'py, PyList>)> {
        let topic = extract_uuid(topic_id)?;
        let bytes = py.detach(|| self.engine.read(topic, partition, offset, max_bytes));
        let (from, bytes) = bytes.map_err(|code| self.refused(py, code, None))?;
        let (mut next, mut rows, mut buffer) = (offset, Vec::<RecordRow<'py>>::new(), Vec::new());
        for batch in batches(&bytes).map_while(Result::ok) {
            let header = batch.header();
            next = header.next_offset();
            let producer_id = if header.is_transactional() { header.producer_id() } else { -1 };
            let damaged = |error: RecordsError| {
                self.refused(py, ErrorCode::CORRUPT_MESSAGE, Some(format!("offset {}: {error}", header.base_offset())))
            };
            for record in records(batch, &mut buffer, DECOMPRESSED_BYTES_MAX).map_err(damaged)? {
                let record = record.map_err(damaged)?;
                if record.offset < from {
                    continue;
                }
                let key = match header.is_control() {
                    true => Some(PyBytes::new(py, &control_kind(record.key).map_err(damaged)?.to_be_bytes())),
                    false => record.key.map(|key| PyBytes::new(py, key)),
                };
                let value = record.value.map(|value| PyBytes::new(py, value));
                rows.push((record.offset, key, value, producer_id, header.is_control()));
            }
        }
        Ok((next, PyList::new(py, rows)?))
    }

    /// See `node.pyi`.
    #[pyo3(signature = (topic_id, partition, read_bytes, *, latest_only))]
    fn load(
        engine: Py<Self>,
        topic_id: &Bound<'_, PyAny>,
        partition: i32,
        read_bytes: usize,
        latest_only: bool,
    ) -> PyResult<LogLoad> {
        let source = LedLog { engine, topic: extract_uuid(topic_id)?, partition, read_bytes };
        Ok(LogLoad::new(Box::new(source), LOADED_PART_BYTES, latest_only))
    }

    fn delete_records(
        &self,
        py: Python<'_>,
        topic_id: &Bound<'_, PyAny>,
        partition: i32,
        offset: i64,
    ) -> PyResult<i64> {
        let partition = self.partition(py, topic_id, partition)?;
        partition.delete_records(offset).map_err(|code| self.refused(py, code, None))
    }

    fn low_watermark(&self, py: Python<'_>, topic_id: &Bound<'_, PyAny>, partition: i32) -> PyResult<i64> {
        self.partition(py, topic_id, partition)?.low_watermark().map_err(|code| self.refused(py, code, None))
    }

    fn high_watermark(&self, py: Python<'_>, topic_id: &Bound<'_, PyAny>, partition: i32) -> PyResult<i64> {
        const LATEST: i64 = -1;
        let query = OffsetQuery {
            timestamp: LATEST,
            current_leader_epoch: -1,
            read_committed: Some(false),
            only_from_leader: true,
        };
        let partition = self.partition(py, topic_id, partition)?;
        let found = py.detach(|| partition.find_offset(&query)).map_err(|code| self.refused(py, code, None))?;
        Ok(found.offset)
    }

    fn producers(&self, py: Python<'_>, topic_id: &Bound<'_, PyAny>, partition: i32) -> PyResult<Vec<ProducerRow>> {
        let partition = self.partition(py, topic_id, partition)?;
        Ok(partition.with(|log| {
            let row = |(id, entry): (i64, &klamm_log::producers::Entry)| {
                let last_sequence = entry.last_batch().map_or(-1, |batch| batch.last_sequence);
                let (epoch, coordinator_epoch) = (i32::from(entry.producer_epoch), entry.coordinator_epoch);
                (id, epoch, last_sequence, entry.last_timestamp, coordinator_epoch, entry.txn_first_offset)
            };
            log.producers().map(row).collect()
        }))
    }

    fn log_dirs(&self, py: Python<'_>) -> Vec<DirRow> {
        let replicas = self.engine.replicas();
        let row = |((at, dir), sizes): ((usize, &Arc<klamm_log::LogDir>), Vec<Size>)| {
            let cause = dir.offline_cause().map(str::to_owned);
            (dir.path().to_owned(), Id(dir.id()), cause, replicas.logs().is_cordoned(at), sizes)
        };
        py.detach(|| replicas.logs().dirs().iter().enumerate().zip(replicas.sizes()).map(row).collect())
    }

    fn alter_log_dir(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        directory_id: &Bound<'_, PyAny>,
    ) -> PyResult<i16> {
        let replicas = self.engine.replicas();
        let Some(dir) = replicas.logs().dir_by_id(extract_uuid(directory_id)?) else {
            return Ok(ErrorCode::KAFKA_STORAGE_ERROR.0);
        };
        Ok(py.detach(|| replicas.alter_dir(topic, partition, dir)).0)
    }

    fn take_directories(&self) -> Vec<(Id, Id, i32)> {
        let told = self.engine.replicas().changes().directories.take();
        told.into_iter().map(|at| (Id(at.directory_id), Id(at.topic_id), at.partition)).collect()
    }

    fn on_directories_assigned(
        &self,
        py: Python<'_>,
        assigned: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>, i32)>,
    ) -> PyResult<()> {
        let read = |(directory, topic, partition): &(Bound<'_, PyAny>, Bound<'_, PyAny>, i32)| {
            let (directory_id, topic_id) = (extract_uuid(directory)?, extract_uuid(topic)?);
            Ok(Unassigned { directory_id, topic_id, partition: *partition })
        };
        let assigned: Vec<_> = assigned.iter().map(read).collect::<PyResult<_>>()?;
        py.detach(|| self.engine.replicas().on_directories_assigned(&assigned));
        Ok(())
    }

    #[getter]
    fn previous_broker_epoch(&self) -> i64 {
        self.engine.replicas().logs().previous_broker_epoch()
    }

    fn counters(&self) -> HashMap<String, u64> {
        self.engine.counters().into_iter().collect()
    }

    fn gauges(&self, py: Python<'_>) -> HashMap<String, u64> {
        py.detach(|| self.engine.gauges().into_iter().collect())
    }

    fn measure_requests(&self, is_on: bool) {
        self.engine.server().request_metrics().measure(is_on);
    }

    fn request_metrics(&self) -> HashMap<String, Distribution> {
        let found = self.engine.server().request_metrics().distributions().into_iter();
        found.map(|metric| (metric.name.clone(), Distribution(metric))).collect()
    }

    fn stop_accepting(&self) {
        self.engine.server().stop_accepting();
    }

    fn shutdown(&self, py: Python<'_>, broker_epoch: i64) {
        py.detach(|| {
            self.engine.shutdown(broker_epoch);
            let runtime = self.runtime.lock().expect("nothing panics with it").take();
            drop(runtime);
        });
    }
}

impl Engine {
    /// The engine of a node whose tasks run on `runtime`; `partition_error` makes an exception of a code and a message.
    pub fn new_from(engine: NodeEngine, runtime: SharedRuntime, partition_error: Py<PyAny>) -> Self {
        Self { engine, runtime: Mutex::new(Some(runtime)), partition_error }
    }

    pub(super) fn refused(&self, py: Python<'_>, code: ErrorCode, message: Option<String>) -> PyErr {
        self.partition_error.bind(py).call1((code.0, message)).map_or_else(|error| error, PyErr::from_value)
    }

    fn partition(
        &self,
        py: Python<'_>,
        topic_id: &Bound<'_, PyAny>,
        index: i32,
    ) -> PyResult<Arc<klamm_replica::Partition>> {
        let topic: Uuid = extract_uuid(topic_id)?;
        py.detach(|| self.engine.replicas().get(topic, index)).map_err(|code| self.refused(py, code, None))
    }
}

/// A partition that a coordinator of this node loads.
struct LedLog {
    engine: Py<Engine>,
    topic: Uuid,
    partition: i32,
    read_bytes: usize,
}

impl Source for LedLog {
    fn read(&self, offset: i64) -> Result<(i64, Vec<u8>), ErrorCode> {
        self.engine.get().engine.read(self.topic, self.partition, offset, self.read_bytes)
    }

    fn refused(&self, py: Python<'_>, code: ErrorCode, message: Option<String>) -> PyErr {
        self.engine.get().refused(py, code, message)
    }
}
