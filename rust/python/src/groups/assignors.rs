//! Assignments, and the hash of a group's metadata.

use std::collections::BTreeMap;

use klamm_base::Uuid;
use klamm_groups::assignment::{Assignment, Assignor, Group, Member, Topic};
use klamm_groups::metadata_hash;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyTuple};

use crate::id::Id;
use crate::metadata::image::Image;

/// Adds what this file defines to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(assign, module)?)?;
    module.add_function(wrap_pyfunction!(topic_hash, module)?)?;
    module.add_function(wrap_pyfunction!(group_hash, module)?)
}

/// Id, instance id, ids of subscribed topics, and the present target.
type MemberRow<'py> = (String, Option<String>, Vec<Id>, Bound<'py, PyMapping>);

/// See `groups.pyi`.
#[pyfunction]
#[pyo3(signature = (assignor, members, partitions, *, homogeneous, assignable=None))]
fn assign<'py>(
    py: Python<'py>,
    assignor: &str,
    members: Vec<MemberRow<'py>>,
    partitions: &Bound<'py, PyMapping>,
    homogeneous: bool,
    assignable: Option<&Bound<'py, PyMapping>>,
) -> PyResult<Bound<'py, PyList>> {
    let assignor = Assignor::by_name(assignor)
        .ok_or_else(|| PyValueError::new_err(format!("there is no assignor {assignor:?}")))?;
    let members = members.into_iter().map(member).collect::<PyResult<Vec<_>>>()?;
    let topics = topics(partitions, assignable)?;
    let (group, assignments) = py.detach(|| {
        let group = Group::new(&members, topics);
        let assignments = group.assign(assignor, homogeneous);
        (group, assignments)
    });
    let ids: Vec<Bound<'_, PyBytes>> = group.topics.iter().map(|topic| PyBytes::new(py, &topic.id.0)).collect();
    let rows = assignments.iter().map(|assignment| by_topic(py, assignment, &ids));
    PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
}

fn member((id, instance_id, subscribed, target): MemberRow<'_>) -> PyResult<Member> {
    let subscribed = subscribed.into_iter().map(|topic| topic.0).collect();
    Ok(Member { id, instance_id, subscribed, target: by_id(&target)? })
}

fn topics(partitions: &Bound<'_, PyMapping>, assignable: Option<&Bound<'_, PyMapping>>) -> PyResult<Vec<Topic>> {
    let mut assignable: Option<BTreeMap<Uuid, Vec<i32>>> = assignable.map(by_id).transpose()?;
    let mut topic = |id: Uuid, partition_count: i32| {
        if partition_count < 0 {
            return Err(PyValueError::new_err(format!("topic {id} has {partition_count} partitions")));
        }
        let exists = |partition: &i32| (0..partition_count).contains(partition);
        let assignable = assignable.as_mut().map(|by_topic| {
            let mut partitions: Vec<i32> =
                by_topic.remove(&id).unwrap_or_default().into_iter().filter(exists).collect();
            partitions.sort_unstable();
            partitions.dedup();
            partitions
        });
        Ok(Topic { id, partition_count, assignable })
    };
    by_id(partitions)?.into_iter().map(|(id, count)| topic(id, count)).collect()
}

/// A mapping whose keys are ids of topics.
pub(super) fn by_id<'py, V>(mapping: &Bound<'py, PyMapping>) -> PyResult<BTreeMap<Uuid, V>>
where
    V: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    let entry = |(key, value): (Bound<'py, PyAny>, Bound<'py, PyAny>)| -> PyResult<(Uuid, V)> {
        Ok((key.extract::<Id>()?.0, value.extract().map_err(Into::into)?))
    };
    match mapping.cast::<PyDict>() {
        Ok(dict) => dict.iter().map(entry).collect(),
        Err(_) => mapping.items()?.iter().map(|item| entry(item.extract()?)).collect(),
    }
}

fn by_topic<'py>(
    py: Python<'py>,
    assignment: &Assignment,
    ids: &[Bound<'py, PyBytes>],
) -> PyResult<Bound<'py, PyDict>> {
    let partitions_of = PyDict::new(py);
    for of_topic in assignment.chunk_by(|(left, _), (right, _)| left == right) {
        let (topic, _) = of_topic[0];
        partitions_of.set_item(&ids[topic], PyTuple::new(py, of_topic.iter().map(|(_, partition)| partition))?)?;
    }
    Ok(partitions_of)
}

/// See `groups.pyi`.
#[pyfunction]
fn topic_hash(image: &Image, topic: &str) -> Option<i64> {
    metadata_hash::topic_hash(&image.0, topic)
}

/// See `groups.pyi`.
#[pyfunction]
fn group_hash(hashes: &Bound<'_, PyAny>) -> PyResult<i64> {
    let hashes = hashes.try_iter()?.map(|row| row?.extract::<(String, i64)>());
    Ok(metadata_hash::group_hash(hashes.collect::<PyResult<Vec<_>>>()?))
}
