//! Assignments of tasks to the members of streams groups.

use klamm_groups::sticky_tasks::{self, Member, Subtopology, Task};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping};

/// Adds what this file defines to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(assign_tasks, module)?)
}

/// Member id, process id, and the present active and standby tasks by subtopology.
type MemberRow<'py> = (String, String, Bound<'py, PyMapping>, Bound<'py, PyMapping>);
/// Id, number of tasks, and whether they have state.
type SubtopologyRow = (String, u32, bool);

/// See `groups.pyi`.
#[pyfunction]
#[pyo3(signature = (members, subtopologies, *, standby_replicas))]
fn assign_tasks<'py>(
    py: Python<'py>,
    members: Vec<MemberRow<'py>>,
    mut subtopologies: Vec<SubtopologyRow>,
    standby_replicas: u32,
) -> PyResult<Bound<'py, PyList>> {
    subtopologies.sort();
    let ids: Vec<&str> = subtopologies.iter().map(|(id, ..)| id.as_str()).collect();
    let mut processes: Vec<&str> = members.iter().map(|(_, process, ..)| process.as_str()).collect();
    processes.sort_unstable();
    processes.dedup();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|&left, &right| members[left].0.cmp(&members[right].0));
    let rows = order.iter().map(|&at| {
        let (_, process, active, standby) = &members[at];
        let process = processes.binary_search(&process.as_str()).expect("every process of a member is listed");
        Ok(Member { process, active: tasks(active, &ids)?, standby: tasks(standby, &ids)? })
    });
    let rows = rows.collect::<PyResult<Vec<_>>>()?;
    let sizes: Vec<Subtopology> =
        subtopologies.iter().map(|&(_, task_count, is_stateful)| Subtopology { task_count, is_stateful }).collect();
    let assigned = py
        .detach(|| sticky_tasks::assign(&sizes, &rows, standby_replicas))
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let mut given = vec![None; members.len()];
    for (at, one) in order.into_iter().zip(&assigned) {
        given[at] = Some((by_subtopology(py, &one.active, &ids)?, by_subtopology(py, &one.standby, &ids)?));
    }
    PyList::new(py, given)
}

/// Tasks of subtopologies that the topology has.
fn tasks(mapping: &Bound<'_, PyMapping>, ids: &[&str]) -> PyResult<Vec<Task>> {
    let mut found = Vec::new();
    for item in mapping.items()? {
        let (id, partitions): (String, Bound<'_, PyAny>) = item.extract()?;
        let Ok(subtopology) = ids.binary_search(&id.as_str()) else { continue };
        for partition in partitions.try_iter()? {
            found.push(Task { partition: partition?.extract()?, subtopology });
        }
    }
    Ok(found)
}

/// Sorted lists by subtopology; `tasks` are sorted by partition.
fn by_subtopology<'py>(py: Python<'py>, tasks: &[Task], ids: &[&str]) -> PyResult<Bound<'py, PyDict>> {
    let mut partitions_of = vec![Vec::new(); ids.len()];
    for task in tasks {
        partitions_of[task.subtopology].push(task.partition);
    }
    let lists = PyDict::new(py);
    for (id, partitions) in ids.iter().zip(partitions_of) {
        if !partitions.is_empty() {
            lists.set_item(id, partitions)?;
        }
    }
    Ok(lists)
}
