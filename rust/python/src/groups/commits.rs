//! `CommitRequest`: one OffsetCommit as the engine reads it, for the group coordinator to decide about.

use klamm_base::ErrorCode;
use klamm_base::primitives::Writer;
use klamm_metadata::MetadataImage;
use klamm_wire::offset_commit::{CommitPartition, CommitTopic, KnownTopic, OffsetCommitRequest as Request};
use klamm_wire::offset_record::{self, OffsetRecord, TooLarge};
use klamm_wire::topic::TopicRef;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::id::Id;
use crate::metadata::image::Image;

/// Index, offset, leader epoch and metadata.
type PartitionRow = (i32, i64, i32, Option<String>);
/// Topic, its id, and offsets to commit.
type TopicRow = (String, Id, Vec<PartitionRow>);

/// See `groups.pyi`.
#[pyclass(frozen, module = "klamm._engine.groups")]
pub struct CommitRequest {
    request: Request,
    #[pyo3(get)]
    group_id: Py<PyString>,
    #[pyo3(get)]
    offset_count: usize,
}

impl CommitRequest {
    fn new_from(py: Python<'_>, request: Request) -> Self {
        let group_id = PyString::new(py, &request.group_id).unbind();
        let offset_count = request.existing().count();
        Self { request, group_id, offset_count }
    }

    /// Reads a body and looks up what it names.
    pub fn read_from(py: Python<'_>, version: i16, body: &[u8], image: &MetadataImage) -> PyResult<Self> {
        let request = Request::read(version, body, &|named| known_topic(image, named));
        Ok(Self::new_from(py, request.map_err(|error| PyValueError::new_err(error.to_string()))?))
    }
}

fn known_topic(image: &MetadataImage, named: &TopicRef<'_>) -> Option<KnownTopic> {
    let topic = match named {
        TopicRef::Name(name) => image.topics().by_name(name),
        TopicRef::Id(id) => image.topics().by_id(*id),
    }?;
    Some(KnownTopic { name: topic.name().clone(), id: topic.id(), partition_count: topic.partition_count() })
}

/// Records, their bytes, changes and error codes.
type Changes<'py> = (Bound<'py, PyList>, usize, Bound<'py, PyList>, Bound<'py, PyList>);

fn metadata_of<'py>(py: Python<'py>, at: &CommitPartition) -> Bound<'py, PyString> {
    if at.metadata.is_empty() { intern!(py, "").clone() } else { PyString::new(py, &at.metadata) }
}

pub(super) fn too_large(error: TooLarge) -> PyErr {
    PyOverflowError::new_err(error.to_string())
}

/// See `groups.pyi`.
#[pyfunction]
fn offset_record_key<'py>(
    py: Python<'py>,
    group_id: &str,
    topic: &str,
    partition: i32,
) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &offset_record::key(group_id, topic, partition).map_err(too_large)?))
}

/// See `groups.pyi`.
#[pyfunction]
fn offset_record_value<'py>(
    py: Python<'py>,
    offset: i64,
    leader_epoch: i32,
    metadata: &str,
    commit_timestamp_ms: i64,
    expire_timestamp_ms: i64,
    topic_id: Id,
) -> PyResult<Bound<'py, PyBytes>> {
    let topic_id = topic_id.0;
    let record = OffsetRecord { offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id };
    Ok(PyBytes::new(py, &record.value().map_err(too_large)?))
}

/// Group, topic, partition, and the offset as `make` makes it.
type OffsetRow<'py> = (Bound<'py, PyString>, Bound<'py, PyString>, i32, Option<Bound<'py, PyAny>>);

/// See `groups.pyi`.
#[pyfunction]
fn read_offset_record<'py>(
    py: Python<'py>,
    key: &[u8],
    value: Option<&[u8]>,
    record_offset: i64,
    make: &Bound<'py, PyAny>,
) -> PyResult<Option<OffsetRow<'py>>> {
    let Some((of, stored)) =
        offset_record::read(key, value).map_err(|error| PyValueError::new_err(error.to_string()))?
    else {
        return Ok(None);
    };
    let stored = stored.map(|stored| {
        let (metadata, topic_id) = (PyString::new(py, &stored.metadata), PyBytes::new(py, &stored.topic_id.0));
        let times = (stored.commit_timestamp_ms, stored.expire_timestamp_ms);
        make.call1(((stored.offset, stored.leader_epoch, metadata, times.0, times.1, topic_id, record_offset),))
    });
    Ok(Some((PyString::new(py, &of.group_id), PyString::new(py, &of.topic), of.partition, stored.transpose()?)))
}

/// Adds what this file defines to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CommitRequest>()?;
    module.add_function(wrap_pyfunction!(offset_record_key, module)?)?;
    module.add_function(wrap_pyfunction!(offset_record_value, module)?)?;
    module.add_function(wrap_pyfunction!(read_offset_record, module)?)
}

/// What became of the offsets of a request.
#[derive(FromPyObject)]
enum Codes {
    All(i16),
    Each(Vec<i16>),
}

fn topic((name, id, partitions): TopicRow) -> CommitTopic {
    let partition = |(index, offset, leader_epoch, metadata): PartitionRow| CommitPartition {
        index,
        offset,
        leader_epoch,
        metadata: metadata.unwrap_or_default().into(),
        refused: ErrorCode::NONE,
    };
    CommitTopic { name: name.into(), id: id.0, partitions: partitions.into_iter().map(partition).collect() }
}

#[pymethods]
impl CommitRequest {
    #[new]
    #[pyo3(signature = (
        group_id, topics, *, version=9, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        retention_time_ms=-1
    ))]
    #[allow(clippy::too_many_arguments)] // Its fields.
    fn new(
        py: Python<'_>,
        group_id: String,
        topics: Vec<TopicRow>,
        version: i16,
        generation_id_or_member_epoch: i32,
        member_id: &str,
        group_instance_id: Option<String>,
        retention_time_ms: i64,
    ) -> Self {
        let request = Request {
            version,
            group_id,
            generation_id: generation_id_or_member_epoch,
            member_id: member_id.to_owned(),
            group_instance_id,
            retention_time_ms,
            topics: topics.into_iter().map(topic).collect(),
        };
        Self::new_from(py, request)
    }

    #[staticmethod]
    fn read(py: Python<'_>, version: i16, body: &[u8], image: &Image) -> PyResult<Self> {
        Self::read_from(py, version, body, &image.0)
    }

    #[getter]
    fn version(&self) -> i16 {
        self.request.version
    }

    #[getter]
    fn generation_id_or_member_epoch(&self) -> i32 {
        self.request.generation_id
    }

    #[getter]
    fn member_id(&self) -> &str {
        &self.request.member_id
    }

    #[getter]
    fn group_instance_id(&self) -> Option<&str> {
        self.request.group_instance_id.as_deref()
    }

    #[getter]
    fn retention_time_ms(&self) -> i64 {
        self.request.retention_time_ms
    }

    /// What to commit at `now_ms`; see `groups.pyi`.
    fn changes<'py>(
        &self,
        py: Python<'py>,
        now_ms: i64,
        expire_ms: i64,
        metadata_max: usize,
        record_offset: i64,
        make: &Bound<'py, PyAny>,
    ) -> PyResult<Changes<'py>> {
        let (records, changes, codes) = (PyList::empty(py), PyList::empty(py), PyList::empty(py));
        let mut size = 0;
        for topic in &self.request.topics {
            let (name, id) = (PyString::new(py, &topic.name), PyBytes::new(py, &topic.id.0));
            for at in topic.partitions.iter().filter(|it| it.exists()) {
                // A byte is at most one unit, so a short text needs no count.
                if at.metadata.len() > metadata_max && at.metadata.encode_utf16().count() > metadata_max {
                    codes.append(ErrorCode::OFFSET_METADATA_TOO_LARGE.0)?;
                    continue;
                }
                codes.append(ErrorCode::NONE.0)?;
                let record = OffsetRecord {
                    offset: at.offset,
                    leader_epoch: at.leader_epoch,
                    metadata: &at.metadata,
                    commit_timestamp_ms: now_ms,
                    expire_timestamp_ms: expire_ms,
                    topic_id: topic.id,
                };
                let key = offset_record::key(&self.request.group_id, &topic.name, at.index).map_err(too_large)?;
                let value = record.value().map_err(too_large)?;
                size += key.len() + value.len();
                let place = record_offset + changes.len() as i64;
                let fields = (at.offset, at.leader_epoch, metadata_of(py, at), now_ms, expire_ms, &id, place);
                changes.append((&name, at.index, make.call1((fields,))?))?;
                records.append((PyBytes::new(py, &key), PyBytes::new(py, &value)))?;
            }
        }
        Ok((records, size, changes, codes))
    }

    /// Topic, its id, partition, offset, leader epoch and metadata of each offset that may be committed.
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        for (topic, at) in self.request.existing() {
            let metadata = metadata_of(py, at);
            rows.append((&*topic.name, Id(topic.id), at.index, at.offset, at.leader_epoch, metadata))?;
        }
        Ok(rows)
    }

    /// The body of the answer: one code for all of these offsets, or one for each.
    fn answer<'py>(&self, py: Python<'py>, codes: Codes) -> PyResult<Bound<'py, PyBytes>> {
        let mut writer = Writer::new();
        match codes {
            Codes::All(code) => self.request.write_answer(&mut writer, || ErrorCode(code)),
            Codes::Each(codes) if codes.len() == self.offset_count => {
                let mut codes = codes.into_iter();
                self.request.write_answer(&mut writer, || ErrorCode(codes.next().unwrap_or_default()));
            }
            Codes::Each(codes) => {
                let message = format!("{} codes for {} offsets", codes.len(), self.offset_count);
                return Err(PyValueError::new_err(message));
            }
        }
        Ok(PyBytes::new(py, writer.as_slice()))
    }
}
