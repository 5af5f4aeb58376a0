//! Elections, placement and the records of new partitions, over an image.
use klamm_metadata::creation::{self, CreationError};
use klamm_metadata::election::Election;
use klamm_metadata::elections::{BrokerEvent, ElectionDefaults, Outcome, PartLimits, Place, WantedChange};
use klamm_metadata::partition::LeaderRecoveryState;
use klamm_metadata::placement;
use parking_lot::Mutex;
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::id::Id;
use crate::metadata::image::Image;

create_exception!(klamm._engine.controller, PlacementError, PyValueError);

/// Adds what this file defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("PlacementError", module.py().get_type::<PlacementError>())?;
    module.add_class::<Elections>()?;
    module.add_class::<Placer>()?;
    module.add_function(wrap_pyfunction!(topic_records, module)?)?;
    module.add_function(wrap_pyfunction!(partition_records, module)?)
}

type Records<'py> = Vec<Bound<'py, PyBytes>>;

/// Topic id, partition, error code and record.
type ElectedLeader<'py> = (Id, i32, i16, Option<Bound<'py, PyBytes>>);

fn to_python(py: Python<'_>, records: Vec<Vec<u8>>) -> Records<'_> {
    records.iter().map(|record| PyBytes::new(py, record)).collect()
}

fn parse_election(text: &str) -> PyResult<Election> {
    match text {
        "preferred" => Ok(Election::Preferred),
        "online" => Ok(Election::Online),
        "unclean" => Ok(Election::Unclean),
        other => Err(PyValueError::new_err(format!("'{other}' is no election: preferred, online and unclean are"))),
    }
}

fn parse_event(text: &str) -> PyResult<BrokerEvent> {
    match text {
        "fenced" => Ok(BrokerEvent::Fenced),
        "unfenced" => Ok(BrokerEvent::Unfenced),
        "controlled_shutdown" => Ok(BrokerEvent::ControlledShutdown),
        "unregistered" => Ok(BrokerEvent::Unregistered),
        "unclean_shutdown" => Ok(BrokerEvent::UncleanShutdown),
        other => Err(PyValueError::new_err(format!(
            "'{other}' is no event: fenced, unfenced, controlled_shutdown, unregistered and unclean_shutdown are"
        ))),
    }
}

/// Leader elections over an image.
#[pyclass(frozen, module = "klamm._engine.controller")]
pub struct Elections {
    image: Image,
    defaults: ElectionDefaults,
}

impl Elections {
    fn engine(&self) -> klamm_metadata::elections::Elections<'_> {
        klamm_metadata::elections::Elections::new(&self.image.0, self.defaults)
    }
}

#[pymethods]
impl Elections {
    #[new]
    #[pyo3(signature = (image, *, node_id, min_insync_replicas, unclean_leader_election_enable))]
    fn new(image: Image, node_id: i32, min_insync_replicas: usize, unclean_leader_election_enable: bool) -> Self {
        Self { image, defaults: ElectionDefaults { node_id, min_insync_replicas, unclean_leader_election_enable } }
    }

    fn for_broker<'py>(&self, py: Python<'py>, event: &str, broker_id: i32) -> PyResult<Records<'py>> {
        let event = parse_event(event)?;
        Ok(to_python(py, py.detach(|| self.engine().for_broker(event, broker_id))))
    }

    #[pyo3(signature = (event, broker_id, place, *, records_max, partitions_max))]
    fn part_for_broker<'py>(
        &self,
        py: Python<'py>,
        event: &str,
        broker_id: i32,
        place: (u32, i32),
        records_max: usize,
        partitions_max: usize,
    ) -> PyResult<(Records<'py>, Option<(u32, i32)>)> {
        let event = parse_event(event)?;
        let from = Place { slot: place.0, partition: place.1 };
        let limits = PartLimits { records: records_max, partitions: partitions_max };
        let (records, next) = py.detach(|| self.engine().part_for_broker(event, broker_id, from, limits));
        Ok((to_python(py, records), next.map(|next| (next.slot, next.partition))))
    }

    fn for_offline_dirs<'py>(&self, py: Python<'py>, broker_id: i32, directories: Vec<Id>) -> Records<'py> {
        let directories: Vec<_> = directories.into_iter().map(|id| id.0).collect();
        to_python(py, py.detach(|| self.engine().for_offline_dirs(broker_id, &directories)))
    }

    fn assign_directories<'py>(
        &self,
        py: Python<'py>,
        broker_id: i32,
        assignments: Vec<(Id, Id, i32)>,
    ) -> (Vec<i16>, Records<'py>) {
        let assignments: Vec<_> = assignments.into_iter().map(|(dir, topic, index)| (dir.0, topic.0, index)).collect();
        let (codes, records) = py.detach(|| self.engine().assign_directories(broker_id, &assignments));
        (codes.into_iter().map(|code| code.0).collect(), to_python(py, records))
    }

    fn preferred_leaders<'py>(&self, py: Python<'py>, limit: usize) -> Records<'py> {
        to_python(py, py.detach(|| self.engine().preferred_leaders(limit)))
    }

    fn unclean_leaders<'py>(&self, py: Python<'py>, limit: usize) -> Records<'py> {
        to_python(py, py.detach(|| self.engine().unclean_leaders(limit)))
    }

    #[pyo3(signature = (election, partitions = None))]
    fn elect_leaders<'py>(
        &self,
        py: Python<'py>,
        election: &str,
        partitions: Option<Vec<(Id, i32)>>,
    ) -> PyResult<Vec<ElectedLeader<'py>>> {
        let election = parse_election(election)?;
        let partitions: Option<Vec<_>> =
            partitions.map(|partitions| partitions.into_iter().map(|(id, index)| (id.0, index)).collect());
        let outcomes = py.detach(|| self.engine().elect_leaders(election, partitions.as_deref()));
        let convert = |outcome| match outcome {
            Outcome::Elected(record) => (0, Some(PyBytes::new(py, &record))),
            Outcome::Refused(error) => (error.0, None),
        };
        let outcomes = outcomes.into_iter().map(|(id, index, outcome)| (id, index, convert(outcome)));
        Ok(outcomes.map(|(id, index, (error, record))| (Id(id), index, error, record)).collect())
    }

    #[pyo3(signature = (
        topic_id, index, *, isr = None, replicas = None, removing_replicas = None, adding_replicas = None,
        leader_recovery_state = None, directory = None, election = None
    ))]
    // Each is a field of the record that a caller may want changed: keywords in Python.
    #[allow(clippy::too_many_arguments)]
    fn change<'py>(
        &self,
        py: Python<'py>,
        topic_id: Id,
        index: i32,
        isr: Option<Vec<i32>>,
        replicas: Option<Vec<i32>>,
        removing_replicas: Option<Vec<i32>>,
        adding_replicas: Option<Vec<i32>>,
        leader_recovery_state: Option<i8>,
        directory: Option<(i32, Id)>,
        election: Option<&str>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let wanted = WantedChange {
            isr,
            replicas,
            removing: removing_replicas,
            adding: adding_replicas,
            leader_recovery_state: leader_recovery_state.map(parse_recovery_state).transpose()?,
            directory: directory.map(|(broker_id, directory_id)| (broker_id, directory_id.0)),
            election: election.map(parse_election).transpose()?,
        };
        Ok(self.engine().change(topic_id.0, index, wanted).map(|record| PyBytes::new(py, &record)))
    }
}

fn parse_recovery_state(value: i8) -> PyResult<LeaderRecoveryState> {
    LeaderRecoveryState::from_value(value)
        .ok_or_else(|| PyValueError::new_err(format!("{value} is no leader recovery state: 0 and 1 are")))
}

/// Places replicas on the brokers of an image.
#[pyclass(frozen, module = "klamm._engine.controller")]
pub struct Placer(Mutex<placement::Placer>);

#[pymethods]
impl Placer {
    #[new]
    fn new(image: &Image, seed: u64) -> Self {
        Self(Mutex::new(placement::Placer::new(&image.0, seed)))
    }

    fn place(&self, partition_count: usize, replication_factor: i32) -> PyResult<Vec<Vec<i32>>> {
        let placed = self.0.lock().place(partition_count, replication_factor);
        placed.map_err(|error| PlacementError::new_err(error.to_string()))
    }
}

fn creation_error(error: CreationError) -> PyErr {
    PlacementError::new_err(error.to_string())
}

#[pyfunction]
fn topic_records<'py>(
    py: Python<'py>,
    image: &Image,
    name: &str,
    topic_id: Id,
    config: Vec<(String, String)>,
    assignments: Vec<Vec<i32>>,
) -> PyResult<Records<'py>> {
    let records = creation::topic_records(&image.0, name, topic_id.0, &config, &assignments);
    Ok(to_python(py, records.map_err(creation_error)?))
}

#[pyfunction]
fn partition_records<'py>(
    py: Python<'py>,
    image: &Image,
    topic_id: Id,
    first_index: i32,
    assignments: Vec<Vec<i32>>,
) -> PyResult<Records<'py>> {
    let records = creation::partition_records(&image.0, topic_id.0, first_index, &assignments);
    Ok(to_python(py, records.map_err(creation_error)?))
}
