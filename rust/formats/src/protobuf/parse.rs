//! Parses the JSON program from Python: `{"message": [fields, absent], "indexes": [[0], ...]}`.
//!
//! A field is `[number, place, is repeated, oneof or null, kind]`. A kind is a scalar like `["int32"]`, `["enum", is
//! closed, [[number, name], ...]]` or `["message", fields, absent]`. The value of a column whose field is absent is
//! null, a number (its bits), or a string of hexadecimal digits (its bytes).

use serde_json::Value;

use super::read::{Absent, Field, Kind, Message, Program};
use super::scalar::{Enum, Scalar};
use crate::program::{ProgramError, all, array, bytes, place, text, whole};
use crate::{Column, Data, Shape};

impl Program {
    /// Reads the program for a column of this shape.
    pub fn parse(json: &Value, shape: &Shape) -> Result<Self, ProgramError> {
        let message = match array(&json["message"])? {
            [fields, absent] => message(fields, absent)?,
            _ => return Err(ProgramError::of("a message", &json["message"])),
        };
        let indexes = all(&json["indexes"], |one| Ok(all(one, whole)?.into()))?;
        check_message(&message, &Column::of(shape)?)?;
        Ok(Self { message, indexes })
    }
}

fn message(fields: &Value, absent: &Value) -> Result<Message, ProgramError> {
    let (mut fields, absent) = (all(fields, field)?, all(absent, absence)?);
    fields.sort_by_key(|field| field.number);
    let mut by_place: Vec<usize> = (0..fields.len()).collect();
    by_place.sort_by_key(|at| fields[*at].place);
    Ok(Message { fields, by_place, absent })
}

fn field(json: &Value) -> Result<Field, ProgramError> {
    let [number, at, is_repeated, oneof, kind] = array(json)? else { return Err(ProgramError::of("a field", json)) };
    Ok(Field {
        number: u32::try_from(whole(number)?).map_err(|_| ProgramError::of("a field's number", number))?,
        place: place(at)?,
        is_repeated: flag(is_repeated)?,
        oneof: if oneof.is_null() { None } else { Some(place(oneof)?) },
        kind: self::kind(kind)?,
    })
}

fn kind(json: &Value) -> Result<Kind, ProgramError> {
    let Some((name, arguments)) = array(json)?.split_first() else { return Err(ProgramError::of("a kind", json)) };
    let scalar = match (text(name)?, arguments) {
        ("message", [fields, absent]) => return Ok(Kind::Message(message(fields, absent)?)),
        ("enum", [is_closed, names]) => Scalar::Enum(symbols(is_closed, names)?),
        ("bool", []) => Scalar::Bool,
        ("int32", []) => Scalar::Int32,
        ("int64", []) => Scalar::Int64,
        ("uint32", []) => Scalar::Uint32,
        ("uint64", []) => Scalar::Uint64,
        ("sint32", []) => Scalar::Sint32,
        ("sint64", []) => Scalar::Sint64,
        ("fixed32", []) => Scalar::Fixed32,
        ("fixed64", []) => Scalar::Fixed64,
        ("sfixed32", []) => Scalar::Sfixed32,
        ("sfixed64", []) => Scalar::Sfixed64,
        ("float", []) => Scalar::Float,
        ("double", []) => Scalar::Double,
        ("string" | "bytes", []) => Scalar::Counted,
        ("timestamp", []) => Scalar::Timestamp,
        ("duration", []) => Scalar::Duration,
        _ => return Err(ProgramError::of("a kind", json)),
    };
    Ok(Kind::Scalar(scalar))
}

fn symbols(is_closed: &Value, names: &Value) -> Result<Enum, ProgramError> {
    let symbol = |json: &Value| match array(json)? {
        [number, name] => {
            let number = i32::try_from(whole(number)?).map_err(|_| ProgramError::of("a symbol", json))?;
            Ok((number, text(name)?.into()))
        }
        _ => Err(ProgramError::of("a symbol", json)),
    };
    let mut names = all(names, symbol)?;
    // Aliases have the same number; the first of them is the name.
    names.sort_by_key(|(number, _)| *number);
    names.dedup_by_key(|(number, _)| *number);
    Ok(Enum { is_closed: flag(is_closed)?, names })
}

fn absence(json: &Value) -> Result<Option<Absent>, ProgramError> {
    Ok(match json {
        Value::Null => None,
        Value::Number(bits) => {
            Some(Absent::Number(bits.as_u64().ok_or_else(|| ProgramError::of("the bits of a number", json))?))
        }
        _ => Some(Absent::Bytes(bytes(json)?.into())),
    })
}

fn flag(json: &Value) -> Result<bool, ProgramError> {
    json.as_bool().ok_or_else(|| ProgramError::of("a flag", json))
}

/// Checks that a message fits the columns that it fills. A program that passes cannot fail for any bytes.
fn check_message(message: &Message, column: &Column) -> Result<(), ProgramError> {
    let Data::Struct(children) = &column.data else { return Err(misfit("a message", column)) };
    let places = message.by_place.iter().map(|at| message.fields[*at].place);
    if !places.eq(0..children.len()) || message.absent.len() != children.len() {
        return Err(misfit(&format!("a message of {} fields", message.fields.len()), column));
    }
    message.fields.iter().try_for_each(|field| check_field(field, &message.absent[field.place], &children[field.place]))
}

fn check_field(field: &Field, absent: &Option<Absent>, column: &Column) -> Result<(), ProgramError> {
    let items = match (&column.data, field.is_repeated) {
        (Data::List { items, .. }, true) => items,
        (Data::List { .. }, false) => return Err(misfit(&format!("field {}", field.number), column)),
        (_, true) => return Err(misfit(&format!("repeated field {}", field.number), column)),
        (_, false) => column,
    };
    let is_valid = match (&field.kind, absent) {
        (_, None) => true,
        (_, Some(_)) if field.is_repeated => false,
        (Kind::Scalar(Scalar::Counted | Scalar::Timestamp | Scalar::Duration), Some(Absent::Bytes(_))) => true,
        (Kind::Scalar(Scalar::Counted | Scalar::Timestamp | Scalar::Duration), _) => false,
        (Kind::Scalar(_), Some(Absent::Number(_))) => true,
        (Kind::Scalar(_), _) => false,
        (Kind::Message(_), Some(absent)) => matches!(absent, Absent::Bytes(_)),
    };
    match &field.kind {
        _ if !is_valid => Err(ProgramError(format!("field {} cannot be {absent:?} when absent", field.number))),
        Kind::Scalar(scalar) if scalar.fits(items) => Ok(()),
        Kind::Scalar(scalar) => Err(misfit(&format!("{scalar:?}"), items)),
        Kind::Message(message) => check_message(message, items),
    }
}

fn misfit(what: &str, column: &Column) -> ProgramError {
    ProgramError(format!("{what} cannot fill {:?}", column.data))
}
