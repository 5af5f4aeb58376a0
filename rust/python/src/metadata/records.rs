//! Metadata records for Python: a codec that walks the engine's schema.
use klamm_base::Uuid;
use klamm_base::primitives::STRING_LEN_MAX;
use klamm_base::primitives::{Reader, WireError, Writer};
use klamm_metadata::field::FieldError;
use klamm_metadata::frame::{self, RecordError};
use klamm_metadata::records;
use klamm_metadata::schema::{DefaultValue, FieldSchema, FieldType, StructSchema};
use klamm_metadata::version::MetadataVersion;
use pyo3::create_exception;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

create_exception!(klamm._engine.metadata, MetadataRecordError, PyValueError);

/// Adds what this file defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("MetadataRecordError", module.py().get_type::<MetadataRecordError>())?;
    module.add_function(wrap_pyfunction!(encode_metadata_record, module)?)?;
    module.add_function(wrap_pyfunction!(decode_metadata_record, module)?)?;
    module.add_function(wrap_pyfunction!(metadata_record_version, module)?)?;
    module.add_function(wrap_pyfunction!(metadata_record_schemas, module)?)
}

fn record_error(error: impl Into<RecordError>) -> PyErr {
    MetadataRecordError::new_err(error.into().to_string())
}

fn wire_error(error: WireError) -> PyErr {
    record_error(error)
}

#[pyfunction]
fn encode_metadata_record<'py>(
    py: Python<'py>,
    record_type: i16,
    version: i16,
    record: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let schema =
        records::schema(record_type).ok_or_else(|| record_error(RecordError::UnknownType(record_type as u32)))?;
    if !(0..=schema.version_max).contains(&version) {
        return Err(record_error(RecordError::UnknownVersion {
            name: schema.body.name,
            version: i32::from(version),
            version_max: schema.version_max,
        }));
    }
    let mut writer = Writer::with_capacity(64);
    frame::write_frame(&mut writer, record_type, version);
    write_struct(&mut writer, schema.body, record, version)?;
    Ok(PyBytes::new(py, writer.as_slice()))
}

#[pyfunction]
fn decode_metadata_record<'py>(py: Python<'py>, data: &[u8]) -> PyResult<(i16, i16, Bound<'py, PyDict>)> {
    let (id, version, mut reader) = frame::read_frame(data).map_err(record_error)?;
    let schema = records::schema(id).expect("read_frame refuses unknown ids");
    let values = read_struct(py, &mut reader, schema.body, version)?;
    match reader.remaining().len() {
        0 => Ok((id, version, values)),
        bytes => Err(record_error(RecordError::Garbage { name: schema.body.name, bytes })),
    }
}

#[pyfunction]
fn metadata_record_version(record_type: i16, metadata_version: i16) -> PyResult<i16> {
    let level = MetadataVersion::supported(metadata_version).ok_or_else(|| {
        MetadataRecordError::new_err(format!("metadata.version {metadata_version} is not supported: 7 to 30 are"))
    })?;
    level.record_version(record_type).ok_or_else(|| record_error(RecordError::UnknownType(record_type as u32)))
}

#[pyfunction]
fn metadata_record_schemas(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    records::SCHEMAS
        .iter()
        .map(|schema| {
            let dump = dump_struct(py, schema.body)?;
            dump.set_item("type", schema.id)?;
            dump.set_item("highest_version", schema.version_max)?;
            Ok(dump)
        })
        .collect()
}

fn dump_struct<'py>(py: Python<'py>, schema: &StructSchema) -> PyResult<Bound<'py, PyDict>> {
    let fields: Vec<Bound<'py, PyDict>> =
        schema.fields.iter().map(|field| dump_field(py, field)).collect::<PyResult<_>>()?;
    let dump = PyDict::new(py);
    dump.set_item("name", schema.name)?;
    dump.set_item("fields", fields)?;
    Ok(dump)
}

fn dump_field<'py>(py: Python<'py>, field: &FieldSchema) -> PyResult<Bound<'py, PyDict>> {
    let dump = PyDict::new(py);
    let (element, is_array) = match field.field_type {
        FieldType::Array(element) => (*element, true),
        other => (other, false),
    };
    dump.set_item("name", field.name)?;
    dump.set_item("is_array", is_array)?;
    match element {
        FieldType::Struct(schema) => dump.set_item("struct", dump_struct(py, schema)?)?,
        primitive => dump.set_item("primitive", format!("{primitive:?}").to_lowercase())?,
    }
    dump.set_item("nullable", field.nullable)?;
    dump.set_item("since", field.since)?;
    dump.set_item("tag", field.tag)?;
    match field.default {
        DefaultValue::Natural => dump.set_item("has_default", false)?,
        DefaultValue::Null => dump.set_item("default", py.None())?,
        DefaultValue::Int(value) => dump.set_item("default", value)?,
        DefaultValue::Bool(value) => dump.set_item("default", value)?,
    }
    Ok(dump)
}

fn read_struct<'py>(
    py: Python<'py>,
    reader: &mut Reader<'_>,
    schema: &StructSchema,
    version: i16,
) -> PyResult<Bound<'py, PyDict>> {
    let values = PyDict::new(py);
    for field in schema.fields {
        let value = match field.tag {
            None if version >= field.since => read_value(py, reader, &field.field_type, field.nullable, version)?,
            _ => default_value(py, field)?,
        };
        values.set_item(PyString::intern(py, field.name), value)?;
    }
    read_tagged(py, reader, schema, version, &values)?;
    Ok(values)
}

fn read_tagged<'py>(
    py: Python<'py>,
    reader: &mut Reader<'_>,
    schema: &StructSchema,
    version: i16,
    values: &Bound<'py, PyDict>,
) -> PyResult<()> {
    let mut failure = None;
    let read = reader.tagged_fields(|tag, bytes| {
        let known = schema.fields.iter().find(|field| field.tag == Some(tag) && version >= field.since);
        let Some(field) = known else { return Ok(false) };
        let value = read_value(py, bytes, &field.field_type, field.nullable, version);
        if let Err(error) = value.and_then(|value| values.set_item(PyString::intern(py, field.name), value)) {
            failure.get_or_insert(error);
        }
        Ok(failure.is_none())
    });
    match failure {
        Some(error) => Err(error),
        None => read.map_err(wire_error),
    }
}

fn default_value<'py>(py: Python<'py>, field: &FieldSchema) -> PyResult<Bound<'py, PyAny>> {
    Ok(match (field.default, field.field_type) {
        (DefaultValue::Null, _) => py.None().into_bound(py),
        (DefaultValue::Int(value), _) => value.into_pyobject(py)?.into_any(),
        (DefaultValue::Bool(value), _) => value.into_pyobject(py)?.to_owned().into_any(),
        (DefaultValue::Natural, FieldType::Bool) => false.into_pyobject(py)?.to_owned().into_any(),
        (DefaultValue::Natural, FieldType::Array(_)) => PyTuple::empty(py).into_any(),
        (DefaultValue::Natural, _) => 0i32.into_pyobject(py)?.into_any(),
    })
}

fn read_value<'py>(
    py: Python<'py>,
    reader: &mut Reader<'_>,
    field_type: &FieldType,
    nullable: bool,
    version: i16,
) -> PyResult<Bound<'py, PyAny>> {
    let none = || py.None().into_bound(py);
    Ok(match field_type {
        FieldType::Bool => reader.bool().map_err(wire_error)?.into_pyobject(py)?.to_owned().into_any(),
        FieldType::Int8 => reader.i8().map_err(wire_error)?.into_pyobject(py)?.into_any(),
        FieldType::Int16 => reader.i16().map_err(wire_error)?.into_pyobject(py)?.into_any(),
        FieldType::Uint16 => reader.u16().map_err(wire_error)?.into_pyobject(py)?.into_any(),
        FieldType::Int32 => reader.i32().map_err(wire_error)?.into_pyobject(py)?.into_any(),
        FieldType::Int64 => reader.i64().map_err(wire_error)?.into_pyobject(py)?.into_any(),
        FieldType::Float64 => reader.f64().map_err(wire_error)?.into_pyobject(py)?.into_any(),
        FieldType::Uuid => PyBytes::new(py, &reader.uuid().map_err(wire_error)?.0).into_any(),
        FieldType::Bytes => PyBytes::new(py, reader.compact_bytes().map_err(wire_error)?).into_any(),
        FieldType::String if nullable => match reader.compact_nullable_string().map_err(wire_error)? {
            Some(text) => PyString::new(py, text).into_any(),
            None => none(),
        },
        FieldType::String => PyString::new(py, reader.compact_string().map_err(wire_error)?).into_any(),
        FieldType::Array(element) => {
            let count = match nullable {
                true => reader.compact_nullable_array_len(1),
                false => reader.compact_array_len(1).map(Some),
            };
            let Some(count) = count.map_err(wire_error)? else { return Ok(none()) };
            let elements: Vec<Bound<'py, PyAny>> =
                (0..count).map(|_| read_value(py, reader, element, false, version)).collect::<PyResult<_>>()?;
            PyTuple::new(py, elements)?.into_any()
        }
        FieldType::Struct(schema) => read_struct(py, reader, schema, version)?.into_any(),
    })
}

fn write_struct(writer: &mut Writer, schema: &StructSchema, record: &Bound<'_, PyAny>, version: i16) -> PyResult<()> {
    let py = record.py();
    let mut tagged = Vec::new();
    for field in schema.fields {
        let value = record.getattr(PyString::intern(py, field.name))?;
        match field.tag {
            None if version >= field.since => write_value(writer, schema, field, &field.field_type, &value, version)?,
            _ if is_default(field, &value)? => {}
            Some(tag) if version >= field.since => tagged.push((tag, field, value)),
            _ => {
                let error = FieldError::NotInVersion { record: schema.name, field: field.name, version };
                return Err(record_error(error));
            }
        }
    }
    writer.unsigned_varint(tagged.len() as u32);
    for (tag, field, value) in tagged {
        let mut written = Ok(());
        writer
            .tagged_field(tag, |bytes| written = write_value(bytes, schema, field, &field.field_type, &value, version));
        written?;
    }
    Ok(())
}

fn is_default(field: &FieldSchema, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match field.field_type {
        FieldType::Array(_) if field.default == DefaultValue::Natural => value.is_empty(),
        _ => value.eq(default_value(value.py(), field)?),
    }
}

fn write_value(
    writer: &mut Writer,
    schema: &StructSchema,
    field: &FieldSchema,
    field_type: &FieldType,
    value: &Bound<'_, PyAny>,
    version: i16,
) -> PyResult<()> {
    let refused = |error: PyErr| {
        let text = format!("{}.{}: {}", schema.name, field.name, error.value(value.py()));
        match error.is_instance_of::<PyOverflowError>(value.py()) {
            true => MetadataRecordError::new_err(text),
            false => error,
        }
    };
    match field_type {
        FieldType::Bool => writer.bool(value.extract().map_err(refused)?),
        FieldType::Int8 => writer.i8(value.extract().map_err(refused)?),
        FieldType::Int16 => writer.i16(value.extract().map_err(refused)?),
        FieldType::Uint16 => writer.u16(value.extract().map_err(refused)?),
        FieldType::Int32 => writer.i32(value.extract().map_err(refused)?),
        FieldType::Int64 => writer.i64(value.extract().map_err(refused)?),
        FieldType::Float64 => writer.f64(value.extract()?),
        FieldType::Uuid => writer.uuid(extract_uuid(value)?),
        FieldType::Bytes => writer.compact_bytes(value.extract()?),
        FieldType::String if field.nullable && value.is_none() => writer.compact_nullable_string(None),
        FieldType::String => writer.compact_string(extract_string(value)?.as_ref()),
        FieldType::Array(_) if field.nullable && value.is_none() => writer.compact_nullable_array_len(None),
        FieldType::Array(element) => {
            writer.compact_array_len(value.len()?);
            for item in value.try_iter()? {
                write_value(writer, schema, field, element, &item?, version)?;
            }
        }
        FieldType::Struct(schema) => write_struct(writer, schema, value, version)?,
    }
    Ok(())
}

fn extract_string<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<std::borrow::Cow<'a, str>> {
    let text: std::borrow::Cow<'a, str> = value.extract()?;
    match text.len() <= STRING_LEN_MAX {
        true => Ok(text),
        false => Err(record_error(FieldError::StringTooLong(text.len()))),
    }
}

/// The id in sixteen raw bytes.
pub fn extract_uuid(value: &Bound<'_, PyAny>) -> PyResult<Uuid> {
    let bytes: &[u8] = value.extract()?;
    let id = bytes.try_into().map(Uuid);
    id.map_err(|_| PyValueError::new_err(format!("an id is 16 bytes, not {}", bytes.len())))
}
