//! Values that leave the engine as "(hidden)": passwords, values of unknown keys, SCRAM credentials.

use klamm_base::primitives::{Reader, WireError};
use klamm_config::Scope;
use klamm_metadata::records::{ConfigRecord, Record};
use klamm_metadata::schema::{FieldSchema, FieldType};

/// In place of a secret.
pub const HIDDEN: &str = "(hidden)";
const CONFIG: i16 = 4;
const SCRAM: i16 = 11;

/// The names of a record's fields that are hidden.
#[derive(Clone, Copy)]
pub struct Hidden(&'static [&'static str]);

impl Hidden {
    pub const NOTHING: Self = Self(&[]);

    pub fn has(self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

/// The fields to hide of a record with this id.
pub fn hidden_fields(value: &[u8], id: i16) -> Hidden {
    match id {
        SCRAM => Hidden(&["salt", "stored_key", "server_key"]),
        CONFIG => match Record::decode(value) {
            Ok((Record::Config(record), _)) if is_public(&record) => Hidden::NOTHING,
            _ => Hidden(&["value"]),
        },
        _ => Hidden::NOTHING,
    }
}

/// Whether a value may be shown: of a key that is known, and no password.
fn is_public(record: &ConfigRecord<'_>) -> bool {
    // Kafka's `ConfigResource.Type`: topic, broker, client metrics, group.
    let scope = match record.resource_type {
        2 => Scope::Topic,
        4 => Scope::Node,
        16 => Scope::ClientMetrics,
        32 => Scope::Group,
        _ => return false,
    };
    klamm_config::find(scope, record.name).is_some_and(|key| !key.is_sensitive())
}

/// Passes over a hidden value. Whether there is one.
pub fn read_hidden(reader: &mut Reader<'_>, field: &FieldSchema) -> Result<bool, WireError> {
    match (field.field_type, field.nullable) {
        (FieldType::Bytes, _) => reader.compact_bytes().map(|_| true),
        (_, true) => reader.compact_nullable_string().map(|text| text.is_some()),
        (_, false) => reader.compact_string().map(|_| true),
    }
}
