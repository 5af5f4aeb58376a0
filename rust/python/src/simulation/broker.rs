//! `SimulatedBroker`: see `simulation.pyi`.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use klamm_base::{ErrorCode, Uuid};
use klamm_config::Settings;
use klamm_log::Claim;
use klamm_net::Unconnected;
use klamm_replica::{Series, Unassigned};
use klamm_simulation::{BrokerOptions, Gauges, Guard, InSession, Lookup, Produced, SimulationError, TransactionMarker};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::id::Id;
use crate::metadata::image::Image;
use crate::node::log_load::{LogLoad, Source};

type Key = (Id, i32);

/// See `SimulatedBroker.take_due`.
type Due = (bool, Vec<i32>, Vec<u64>, Vec<u64>, Vec<(u64, i16)>);

/// See `SimulatedBroker.in_session`.
type InSessionRow = (Key, i32, i64, i32, i64, i64);

/// See `SimulatedBroker.answer_fetch`.
type AnsweredFetch<'py> = (Option<Bound<'py, PyBytes>>, Option<Vec<InSessionRow>>);

/// See `SimulatedBroker.consume_committed`.
type ConsumedRow<'py> = (i16, i64, Bound<'py, PyBytes>, Vec<(i64, i64)>);

/// See `SimulatedBroker.take_share_calls`.
type ShareCall<'py> = (u64, i16, Bound<'py, PyBytes>);

/// See `SimulatedBroker.damage`.
type FoundDamage = (Key, Vec<(i64, i64)>, Vec<i32>);

fn failed(error: SimulationError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn key((topic_id, index): Key) -> (Uuid, i32) {
    (topic_id.0, index)
}

fn series_of(row: Option<(i32, u64)>) -> Option<Series> {
    row.map(|(leader_epoch, number)| Series { leader_epoch, number })
}

fn assignment(it: &Unassigned) -> (Id, Key) {
    (Id(it.directory_id), (Id(it.topic_id), it.partition))
}

fn in_session_row(it: &InSession) -> InSessionRow {
    let key = (Id(it.topic_id), it.index);
    (key, it.leader_epoch, it.fetch_offset, it.last_fetched_epoch, it.log_start_offset, it.high_watermark)
}

fn code_and_offset(result: Result<i64, ErrorCode>) -> (i16, i64) {
    result.map_or_else(|code| (code.0, -1), |offset| (ErrorCode::NONE.0, offset))
}

fn bytes(py: Python<'_>, body: Option<Vec<u8>>) -> Option<Bound<'_, PyBytes>> {
    body.map(|body| PyBytes::new(py, &body))
}

/// See `simulation.pyi`.
#[pyclass(frozen, get_all, module = "klamm._engine.simulation")]
pub struct ReplicaGauges {
    is_leader: bool,
    leader_epoch: i32,
    partition_epoch: i32,
    isr: Vec<i32>,
    high_watermark: i64,
    log_start_offset: i64,
    flushed_offset: i64,
    log_end_offset: i64,
    epochs: Vec<(i32, i64)>,
}

impl From<Gauges> for ReplicaGauges {
    fn from(gauges: Gauges) -> Self {
        Self {
            is_leader: gauges.is_leader,
            leader_epoch: gauges.leader_epoch,
            partition_epoch: gauges.partition_epoch,
            isr: gauges.isr,
            high_watermark: gauges.high_watermark,
            log_start_offset: gauges.log_start_offset,
            flushed_offset: gauges.flushed_offset,
            log_end_offset: gauges.log_end_offset,
            epochs: gauges.epochs,
        }
    }
}

/// A partition that a coordinator of this broker loads.
struct LedLog {
    log: klamm_simulation::LedLog,
    read_bytes: usize,
    /// Makes an exception of a code and a message.
    partition_error: Py<PyAny>,
}

impl Source for LedLog {
    fn read(&self, offset: i64) -> Result<(i64, Vec<u8>), ErrorCode> {
        self.log.read(offset, self.read_bytes)
    }

    fn refused(&self, py: Python<'_>, code: ErrorCode, message: Option<String>) -> PyErr {
        self.partition_error.bind(py).call1((code.0, message)).map_or_else(|error| error, PyErr::from_value)
    }
}

/// See `simulation.pyi`.
#[pyclass(unsendable, module = "klamm._engine.simulation")]
pub struct SimulatedBroker(klamm_simulation::SimulatedBroker);

#[pymethods]
impl SimulatedBroker {
    #[new]
    #[pyo3(signature = (node_id, directory_ids, folder, settings, without=None))]
    fn new(
        node_id: i32,
        directory_ids: Vec<Id>,
        folder: PathBuf,
        settings: HashMap<String, String>,
        without: Option<&str>,
    ) -> PyResult<Self> {
        let unknown = |name| PyValueError::new_err(format!("there is no guard {name:?}"));
        let without = without.map(|name| Guard::named(name).ok_or_else(|| unknown(name))).transpose()?;
        let settings = Settings::new(settings).map_err(|error| PyValueError::new_err(format!("{error:?}")))?;
        let directory_ids = directory_ids.into_iter().map(|id| id.0).collect();
        let options = BrokerOptions { node_id, directory_ids, settings, without };
        klamm_simulation::SimulatedBroker::new(options, &folder).map(Self).map_err(failed)
    }

    fn start(&mut self, now_ms: i64) -> PyResult<i64> {
        self.0.start(now_ms).map_err(failed)
    }

    fn kill(&mut self) -> PyResult<()> {
        self.0.kill().map_err(failed)
    }

    fn cut_power(&mut self, seed: u64) -> PyResult<()> {
        self.0.cut_power(seed).map_err(failed)
    }

    fn clean(&mut self, now_ms: i64) -> PyResult<Vec<Key>> {
        let cleaned = self.0.clean(now_ms).map_err(failed)?;
        Ok(cleaned.into_iter().map(|(topic, index)| (Id(topic), index)).collect())
    }

    fn cut_power_while_cleaning(&mut self, seed: u64, now_ms: i64) -> PyResult<()> {
        self.0.cut_power_while_cleaning(seed, now_ms).map_err(failed)
    }

    fn shut_down(&mut self, broker_epoch: i64) -> PyResult<()> {
        self.0.shut_down(broker_epoch).map_err(failed)
    }

    fn open_the_rest(&mut self, now_ms: i64) -> PyResult<()> {
        self.0.open_the_rest(now_ms).map_err(failed)
    }

    fn publish(&mut self, image: &Image, now_ms: i64) -> PyResult<Vec<(Id, Key)>> {
        let unassigned = self.0.publish(image.0.clone(), now_ms).map_err(failed)?;
        Ok(unassigned.iter().map(assignment).collect())
    }

    fn produce(
        &mut self,
        partition: Key,
        mut batches: Vec<u8>,
        acks: i16,
        ticket: u64,
        now_ms: i64,
    ) -> PyResult<(i16, i64)> {
        match self.0.produce(key(partition), &mut batches, acks, ticket, now_ms).map_err(failed)? {
            Produced::Appended(end_offset) => Ok((ErrorCode::NONE.0, end_offset)),
            Produced::Refused(code) => Ok((code.0, -1)),
        }
    }

    fn begin_verification(
        &mut self,
        partition: Key,
        producer: (i64, i16, i32),
        is_adding: bool,
        ticket: u64,
        now_ms: i64,
    ) -> PyResult<(i16, bool)> {
        let (producer_id, producer_epoch, base_sequence) = producer;
        let claim = Claim { producer_id, producer_epoch, base_sequence };
        let begun = self.0.begin_verification(key(partition), claim, is_adding, ticket, now_ms).map_err(failed)?;
        Ok(begun.map_or_else(|code| (code.0, false), |must_ask| (ErrorCode::NONE.0, must_ask)))
    }

    fn append_marker(
        &mut self,
        partition: Key,
        marker: (i64, i16, bool, i32, i8),
        needs_min_isr: bool,
        series: Option<(i32, u64)>,
        ticket: u64,
        now_ms: i64,
    ) -> PyResult<(i16, i64)> {
        let (producer_id, producer_epoch, commits, coordinator_epoch, transaction_version) = marker;
        let marker = TransactionMarker { producer_id, producer_epoch, commits, coordinator_epoch, transaction_version };
        match self
            .0
            .append_marker(key(partition), &marker, needs_min_isr, series_of(series), ticket, now_ms)
            .map_err(failed)?
        {
            Produced::Appended(end_offset) => Ok((ErrorCode::NONE.0, end_offset)),
            Produced::Refused(code) => Ok((code.0, -1)),
        }
    }

    fn append_own(
        &mut self,
        partition: Key,
        mut batch: Vec<u8>,
        series: Option<(i32, u64)>,
        ticket: u64,
        now_ms: i64,
    ) -> PyResult<(i16, i64)> {
        match self.0.append_own(key(partition), &mut batch, series_of(series), ticket, now_ms).map_err(failed)? {
            Produced::Appended(end_offset) => Ok((ErrorCode::NONE.0, end_offset)),
            Produced::Refused(code) => Ok((code.0, -1)),
        }
    }

    fn load(
        &mut self,
        partition: Key,
        read_bytes: usize,
        part_bytes: usize,
        latest_only: bool,
        partition_error: Py<PyAny>,
    ) -> PyResult<LogLoad> {
        let log = self.0.led_log(key(partition)).map_err(failed)?;
        Ok(LogLoad::new(Box::new(LedLog { log, read_bytes, partition_error }), part_bytes, latest_only))
    }

    #[staticmethod]
    fn guards() -> Vec<&'static str> {
        Guard::names().collect()
    }

    fn take_due(&mut self, now_ms: i64) -> PyResult<Due> {
        let due = self.0.take_due(now_ms).map_err(failed)?;
        let acks = due.acks.into_iter().map(|(ticket, code)| (ticket, code.0)).collect();
        Ok((due.has_roles, due.leaders, due.woken, due.flushes, acks))
    }

    fn fail_dir(&mut self, dir: usize) -> PyResult<()> {
        self.0.fail_dir(dir).map_err(failed)
    }

    fn flip_bit(&mut self, seed: u64, ends: BTreeMap<String, i64>) -> PyResult<Option<String>> {
        self.0.flip_bit(seed, &ends).map_err(failed)
    }

    fn move_replica(&mut self, topic: &str, index: i32, dir: usize, now_ms: i64) -> PyResult<i16> {
        self.0.move_replica(topic, index, dir, now_ms).map(|code| code.0).map_err(failed)
    }

    fn step_moves(&mut self, now_ms: i64) -> PyResult<Vec<(Id, Key)>> {
        Ok(self.0.step_moves(now_ms).map_err(failed)?.iter().map(assignment).collect())
    }

    fn on_directories_assigned(&mut self, assigned: Vec<(Id, Key)>) -> PyResult<()> {
        let unassigned = |(directory, (topic, partition)): (Id, Key)| Unassigned {
            directory_id: directory.0,
            topic_id: topic.0,
            partition,
        };
        let assigned: Vec<_> = assigned.into_iter().map(unassigned).collect();
        self.0.on_directories_assigned(&assigned).map_err(failed)
    }

    fn damage(&mut self) -> PyResult<Vec<FoundDamage>> {
        let found = self.0.damage().map_err(failed)?.into_iter();
        Ok(found.map(|damage| ((Id(damage.key.0), damage.key.1), damage.ranges, damage.others)).collect())
    }

    fn repair(&mut self, partition: Key, fetch_offset: i64, batches: &[u8]) -> PyResult<bool> {
        self.0.repair(key(partition), fetch_offset, batches).map_err(failed)
    }

    fn follow_roles(&mut self, now_ms: i64) -> PyResult<Vec<i32>> {
        self.0.follow_roles(now_ms).map_err(failed)
    }

    fn retain(&mut self, now_ms: i64) -> PyResult<()> {
        self.0.retain(now_ms).map_err(failed)
    }

    fn end_offset(&mut self, partition: Key, leader_epoch: i32, now_ms: i64) -> PyResult<(i16, i64)> {
        self.0.end_offset(key(partition), leader_epoch, now_ms).map(code_and_offset).map_err(failed)
    }

    fn delete_records(&mut self, partition: Key, offset: i64, now_ms: i64) -> PyResult<(i16, i64)> {
        self.0.delete_records(key(partition), offset, now_ms).map(code_and_offset).map_err(failed)
    }

    fn low_watermark(&mut self, partition: Key) -> PyResult<(i16, i64)> {
        self.0.low_watermark(key(partition)).map(code_and_offset).map_err(failed)
    }

    fn end_flush(&mut self, number: u64, now_ms: i64) -> PyResult<()> {
        self.0.end_flush(number, now_ms).map_err(failed)
    }

    fn checkpoint(&mut self) -> PyResult<()> {
        self.0.checkpoint().map_err(failed)
    }

    fn check_lag(&mut self, now_ms: i64) -> PyResult<()> {
        self.0.check_lag(now_ms).map_err(failed)
    }

    fn alter_partition_request<'py>(
        &mut self,
        py: Python<'py>,
        broker_epoch: i64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(bytes(py, self.0.alter_partition_request(broker_epoch).map_err(failed)?))
    }

    fn on_alter_partition_response(&mut self, body: Option<&[u8]>) -> PyResult<()> {
        self.0.on_alter_partition_response(body).map_err(failed)
    }

    fn fetch_request<'py>(
        &mut self,
        py: Python<'py>,
        leader: i32,
        now_ms: i64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(bytes(py, self.0.fetch_request(leader, now_ms).map_err(failed)?))
    }

    fn in_session(&mut self, leader: i32) -> PyResult<Vec<InSessionRow>> {
        Ok(self.0.in_session(leader).map_err(failed)?.iter().map(in_session_row).collect())
    }

    fn fetch_due_ms(&mut self, leader: i32) -> PyResult<Option<i64>> {
        self.0.fetch_due_ms(leader).map_err(failed)
    }

    fn on_fetch_response(&mut self, leader: i32, body: Vec<u8>, now_ms: i64) -> PyResult<Vec<(Key, i32)>> {
        let lookups = self.0.on_fetch_response(leader, body, now_ms).map_err(failed)?;
        Ok(lookups.iter().map(|lookup| ((Id(lookup.topic_id), lookup.index), lookup.leader_epoch)).collect())
    }

    fn on_fetch_failed(&mut self, leader: i32) -> PyResult<()> {
        self.0.on_fetch_failed(leader).map_err(failed)
    }

    fn leader_offsets(&mut self, partition: Key, leader_epoch: i32) -> PyResult<Option<(i64, i64)>> {
        let lookup = Lookup { topic_id: partition.0.0, index: partition.1, leader_epoch };
        Ok(self.0.leader_offsets(lookup).map_err(failed)?.ok())
    }

    fn on_leader_offsets(
        &mut self,
        leader: i32,
        partition: Key,
        found: Option<(i64, i64)>,
        now_ms: i64,
    ) -> PyResult<()> {
        let lookup = Lookup { topic_id: partition.0.0, index: partition.1, leader_epoch: -1 };
        self.0.on_leader_offsets(leader, lookup, found, now_ms).map_err(failed)
    }

    fn answer_fetch<'py>(
        &mut self,
        py: Python<'py>,
        number: u64,
        body: &[u8],
        now_ms: i64,
    ) -> PyResult<AnsweredFetch<'py>> {
        let answered = self.0.answer_fetch(number, body, now_ms).map_err(failed)?;
        let in_session = answered.in_session.map(|found| found.iter().map(in_session_row).collect());
        Ok((bytes(py, answered.body), in_session))
    }

    #[expect(clippy::too_many_arguments, reason = "the seam has no struct for a request")]
    fn answer<'py>(
        &mut self,
        py: Python<'py>,
        number: u64,
        api_key: i16,
        version: i16,
        connection_id: u64,
        body: &[u8],
        now_ms: i64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let request = Unconnected { api_key, version, connection_id, body };
        Ok(bytes(py, self.0.answer(number, request, now_ms).map_err(failed)?))
    }

    fn disconnect(&mut self, connection_id: u64, now_ms: i64) -> PyResult<()> {
        self.0.disconnect(connection_id, now_ms).map_err(failed)
    }

    fn expire_locks(&mut self, now_ms: i64) -> PyResult<()> {
        self.0.expire_locks(now_ms).map_err(failed)
    }

    fn take_share_calls<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<ShareCall<'py>>> {
        let calls = self.0.take_share_calls().map_err(failed)?.into_iter();
        Ok(calls.map(|call| (call.request_id, call.api_key, PyBytes::new(py, &call.body))).collect())
    }

    fn share_state_answered(&mut self, request_id: u64, code: i16, body: &[u8], now_ms: i64) -> PyResult<()> {
        self.0.share_state_answered(request_id, ErrorCode(code), body, now_ms).map_err(failed)
    }

    fn share_gauges(&mut self, group: &str, partition: Key) -> PyResult<Option<(u64, i32, i64, i64)>> {
        let found = self.0.share_gauges(group, key(partition)).map_err(failed)?;
        Ok(found.map(|it| (it.id, it.leader_epoch, it.start_offset, it.next_offset)))
    }

    fn look_again<'py>(
        &mut self,
        py: Python<'py>,
        number: u64,
        is_late: bool,
        now_ms: i64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(bytes(py, self.0.look_again(number, is_late, now_ms).map_err(failed)?))
    }

    fn consume<'py>(
        &mut self,
        py: Python<'py>,
        partition: Key,
        offset: i64,
        leader_epoch: i32,
        now_ms: i64,
    ) -> PyResult<(i16, i64, Bound<'py, PyBytes>)> {
        let found = self.0.consume(key(partition), offset, leader_epoch, false, now_ms).map_err(failed)?;
        Ok((found.error.0, found.high_watermark, PyBytes::new(py, &found.records)))
    }

    fn consume_committed<'py>(
        &mut self,
        py: Python<'py>,
        partition: Key,
        offset: i64,
        now_ms: i64,
    ) -> PyResult<ConsumedRow<'py>> {
        let found = self.0.consume(key(partition), offset, -1, true, now_ms).map_err(failed)?;
        Ok((found.error.0, found.last_stable_offset, PyBytes::new(py, &found.records), found.aborted))
    }

    fn take_changed(&mut self) -> PyResult<Vec<(Key, Option<ReplicaGauges>)>> {
        let changed = self.0.take_changed().map_err(failed)?;
        let changed = changed.into_iter();
        Ok(changed.map(|((topic, index), gauges)| ((Id(topic), index), gauges.map(ReplicaGauges::from))).collect())
    }

    fn batches<'py>(&mut self, py: Python<'py>, partition: Key, offset: i64) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.batches(key(partition), offset).map_err(failed)?))
    }
}
