//! The structure of metadata records as data: the source of the Python classes and of the dynamic codec in the PyO3
//! shell.

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    Array(&'static FieldType),
    Struct(&'static StructSchema),
}

/// One field of a record or of a structure in it. Every version of every metadata record is flexible; a nullable
/// field is nullable, and a tagged field tagged, in every version that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSchema {
    /// Name in snake case; Apache Kafka uses the same name in camel case.
    pub name: &'static str,
    pub field_type: FieldType,
    pub nullable: bool,
    /// First version that has the field.
    pub since: i16,
    pub tag: Option<u32>,
    pub default: DefaultValue,
}

/// The value of a field that is not encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// 0, false, the empty string, no bytes, no elements, a structure of defaults.
    Natural,
    Null,
    Int(i64),
    Bool(bool),
}

/// A structure: fields without a tag in wire order, then tagged ones by ascending tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructSchema {
    pub name: &'static str,
    pub fields: &'static [FieldSchema],
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSchema {
    /// Id in the frame; the schema's `apiKey`.
    pub id: i16,
    pub version_max: i16,
    pub body: &'static StructSchema,
}
