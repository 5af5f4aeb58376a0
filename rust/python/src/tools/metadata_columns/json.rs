//! The fields of records as JSON, by the names and in the forms that `klamm.metadata.rendering.fields` has.

use klamm_base::Uuid;
use klamm_base::primitives::{Reader, WireError};
use klamm_metadata::frame::{self, RecordError};
use klamm_metadata::records;
use klamm_metadata::schema::{DefaultValue, FieldSchema, FieldType, StructSchema};
use klamm_records::control::{ControlRecord, Voter};
use serde_json::{Value, json};

use super::fields::{self, Given};
use super::secrets::{HIDDEN, Hidden, hidden_fields, read_hidden};

/// A metadata record's fields.
pub fn write_record(out: &mut Vec<u8>, value: &[u8]) -> Result<(), RecordError> {
    let (id, version, mut reader) = frame::read_frame(value)?;
    let schema = records::schema(id).expect("read_frame refuses unknown ids").body;
    write_struct(out, schema, &mut reader, version, hidden_fields(value, id))?;
    frame::check_end(&reader, schema.name)
}

/// What stands for the fields of a record that cannot be read.
pub fn write_unreadable(out: &mut Vec<u8>, value: &[u8], error: &str) {
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    write_json(out, json!({ "value": hex, "error": error }));
}

/// The fields of one of raft's own records.
pub fn write_control(out: &mut Vec<u8>, record: &ControlRecord, value: &[u8]) {
    match record {
        ControlRecord::LeaderChange { leader_id, voters, granting_voters } => {
            write_json(out, json!({ "leader_id": leader_id, "voters": voters, "granting_voters": granting_voters }));
        }
        ControlRecord::SnapshotHeader { last_contained_log_timestamp } => {
            write_json(out, json!({ "last_contained_log_timestamp": last_contained_log_timestamp }));
        }
        ControlRecord::KRaftVersion { kraft_version } => write_json(out, json!({ "kraft_version": kraft_version })),
        ControlRecord::KRaftVoters { voters } => {
            write_json(out, json!({ "voters": voters.iter().map(voter).collect::<Vec<_>>() }));
        }
        ControlRecord::SnapshotFooter => write_json(out, json!({})),
        _ => write_unreadable(out, value, "a control record of an unknown type"),
    }
}

fn voter(voter: &Voter) -> Value {
    let endpoints = voter.endpoints.iter().map(|one| format!("{}://{}:{}", one.name, one.host, one.port));
    json!({
        "id": voter.id,
        "directory_id": Uuid(voter.directory_id).to_string(),
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

fn write_struct(
    out: &mut Vec<u8>,
    schema: &'static StructSchema,
    reader: &mut Reader<'_>,
    version: i16,
    hidden: Hidden,
) -> Result<(), WireError> {
    out.push(b'{');
    fields::for_each(schema, reader, version, |at, field, given| {
        if at > 0 {
            out.extend_from_slice(b", ");
        }
        write_text(out, field.name);
        out.extend_from_slice(b": ");
        match given {
            Given::Default => write_default(out, field),
            Given::Here(reader) if hidden.has(field.name) => match read_hidden(reader, field)? {
                true => write_text(out, HIDDEN),
                false => out.extend_from_slice(b"null"),
            },
            Given::Here(reader) => write_value(out, reader, &field.field_type, field.nullable, version)?,
        }
        Ok(())
    })?;
    out.push(b'}');
    Ok(())
}

fn write_value(
    out: &mut Vec<u8>,
    reader: &mut Reader<'_>,
    field_type: &'static FieldType,
    nullable: bool,
    version: i16,
) -> Result<(), WireError> {
    match field_type {
        FieldType::Bool => write_json(out, reader.bool()?),
        FieldType::Int8 => write_json(out, reader.i8()?),
        FieldType::Int16 => write_json(out, reader.i16()?),
        FieldType::Uint16 => write_json(out, reader.u16()?),
        FieldType::Int32 => write_json(out, reader.i32()?),
        FieldType::Int64 => write_json(out, reader.i64()?),
        FieldType::Float64 => write_json(out, reader.f64()?),
        FieldType::Uuid => write_text(out, &reader.uuid()?.to_string()),
        FieldType::Bytes => {
            reader.compact_bytes()?;
            write_text(out, HIDDEN);
        }
        FieldType::String if nullable => write_json(out, reader.compact_nullable_string()?),
        FieldType::String => write_text(out, reader.compact_string()?),
        FieldType::Array(element) => {
            let count = match nullable {
                true => reader.compact_nullable_array_len(1)?,
                false => Some(reader.compact_array_len(1)?),
            };
            let Some(count) = count else {
                out.extend_from_slice(b"null");
                return Ok(());
            };
            out.push(b'[');
            for at in 0..count {
                if at > 0 {
                    out.extend_from_slice(b", ");
                }
                write_value(out, reader, element, false, version)?;
            }
            out.push(b']');
        }
        FieldType::Struct(schema) => write_struct(out, schema, reader, version, Hidden::NOTHING)?,
    }
    Ok(())
}

fn write_default(out: &mut Vec<u8>, field: &FieldSchema) {
    match (field.default, field.field_type) {
        (DefaultValue::Null, _) => out.extend_from_slice(b"null"),
        (DefaultValue::Int(number), _) => write_json(out, number),
        (DefaultValue::Bool(is_true), _) => write_json(out, is_true),
        (DefaultValue::Natural, FieldType::Bool) => out.extend_from_slice(b"false"),
        (DefaultValue::Natural, FieldType::Array(_)) => out.extend_from_slice(b"[]"),
        (DefaultValue::Natural, FieldType::String | FieldType::Uuid | FieldType::Bytes) => write_text(out, ""),
        (DefaultValue::Natural, FieldType::Struct(_)) => out.extend_from_slice(b"{}"),
        (DefaultValue::Natural, _) => out.push(b'0'),
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("memory takes it");
}

fn write_json(out: &mut Vec<u8>, value: impl Into<Value>) {
    serde_json::to_writer(out, &value.into()).expect("memory takes it, and every key is text");
}
