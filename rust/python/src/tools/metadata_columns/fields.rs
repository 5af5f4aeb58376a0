//! The fields of a record in the order of its schema, wherever they stand in the bytes.

use klamm_base::primitives::{Reader, WireError};
use klamm_metadata::schema::{FieldSchema, StructSchema};

use super::growing::Values;
use super::secrets::Hidden;

/// A field as the bytes have it.
pub enum Given<'r, 'a> {
    /// To be read from here.
    Here(&'r mut Reader<'a>),
    /// Not there: it has its default.
    Default,
}

/// Calls `each` with every field of a structure, in the order of its schema.
pub fn for_each<'a>(
    schema: &'static StructSchema,
    reader: &mut Reader<'a>,
    version: i16,
    mut each: impl FnMut(usize, &'static FieldSchema, Given<'_, 'a>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let first_tagged = schema.fields.iter().position(|field| field.tag.is_some()).unwrap_or(schema.fields.len());
    for (at, field) in schema.fields[..first_tagged].iter().enumerate() {
        let given = if version >= field.since { Given::Here(reader) } else { Given::Default };
        each(at, field, given)?;
    }
    let mut tagged: Vec<(u32, &'a [u8])> = Vec::new();
    reader.tagged_fields(|tag, bytes| {
        tagged.push((tag, bytes.remaining()));
        Ok(false)
    })?;
    for (at, field) in schema.fields.iter().enumerate().skip(first_tagged) {
        let bytes = tagged.iter().find(|(tag, _)| field.tag == Some(*tag) && version >= field.since);
        match bytes {
            None => each(at, field, Given::Default)?,
            Some((_, bytes)) => {
                let mut reader = Reader::new(bytes);
                each(at, field, Given::Here(&mut reader))?;
                reader.finish()?;
            }
        }
    }
    Ok(())
}

/// A row more of a structure's columns.
pub fn push(
    columns: &mut [Values],
    schema: &'static StructSchema,
    reader: &mut Reader<'_>,
    version: i16,
    hidden: Hidden,
) -> Result<(), WireError> {
    for_each(schema, reader, version, |at, field, given| match given {
        Given::Default => {
            columns[at].push_default(field);
            Ok(())
        }
        Given::Here(reader) if hidden.has(field.name) => columns[at].push_hidden(reader, field),
        Given::Here(reader) => columns[at].push(reader, &field.field_type, field.nullable, version),
    })
}
