//! Parses the JSON program from Python: `{"root": read, "named": [skip, ...]}`, each a list that begins with its name.

use serde_json::Value;

use super::read::{Program, Read, Step};
use super::skip::Skip;
use crate::program::{ProgramError, all, array, bytes, place, text, whole};
use crate::{Column, Shape};

impl Program {
    /// Reads the program for a column of this shape.
    pub fn parse(json: &Value, shape: &Shape) -> Result<Self, ProgramError> {
        let program = Self { root: read(&json["root"])?, named: all(&json["named"], skip)? };
        program.check(&Column::of(shape)?)?;
        Ok(program)
    }
}

fn read(json: &Value) -> Result<Read, ProgramError> {
    let Some((name, arguments)) = array(json)?.split_first() else { return Err(ProgramError::of("a read", json)) };
    Ok(match (text(name)?, arguments) {
        ("null", []) => Read::Null,
        ("boolean", []) => Read::Boolean,
        ("int", []) => Read::Int,
        ("long", []) => Read::Long,
        ("scaled", [times, parts]) => Read::Scaled { times: whole(times)?, parts: whole(parts)? },
        ("float", []) => Read::Float,
        ("double", []) => Read::Double,
        ("counted", []) => Read::Counted,
        ("fixed", [size]) => Read::Fixed(place(size)?),
        ("decimal", [size, precision]) => Read::Decimal { size: optional(size, place)?, precision: digits(precision)? },
        ("uuid", []) => Read::Uuid,
        ("enum", [symbols]) => Read::Enum(all(symbols, |json| optional(json, |json| Ok(text(json)?.into())))?),
        ("array", [item]) => Read::Array(Box::new(read(item)?)),
        ("map", [value]) => Read::Map(Box::new(read(value)?)),
        ("record", [steps, defaults]) => Read::Record { steps: all(steps, step)?, defaults: all(defaults, default)? },
        ("union", [branches]) => Read::Union(all(branches, read)?),
        ("member", [at, member]) => Read::Member(place(at)?, Box::new(read(member)?)),
        ("refuse", [why]) => Read::Refuse(text(why)?.into()),
        _ => return Err(ProgramError::of("a read", json)),
    })
}

fn step(json: &Value) -> Result<Step, ProgramError> {
    match array(json)? {
        [at, field] if at.is_i64() => Ok(Step::Into(place(at)?, read(field)?)),
        _ => Ok(Step::Pass(skip(json)?)),
    }
}

fn default(json: &Value) -> Result<(usize, Box<[u8]>, Read), ProgramError> {
    match array(json)? {
        [at, value, field] => Ok((place(at)?, bytes(value)?.into(), read(field)?)),
        _ => Err(ProgramError::of("a default", json)),
    }
}

fn skip(json: &Value) -> Result<Skip, ProgramError> {
    let Some((name, arguments)) = array(json)?.split_first() else { return Err(ProgramError::of("a skip", json)) };
    Ok(match (text(name)?, arguments) {
        ("bytes", [size]) => Skip::Bytes(place(size)?),
        ("varint", []) => Skip::Varint,
        ("counted", []) => Skip::Counted,
        ("array", [item]) => Skip::Array(Box::new(skip(item)?)),
        ("map", [value]) => Skip::Map(Box::new(skip(value)?)),
        ("record", [fields]) => Skip::Record(all(fields, skip)?),
        ("union", [branches]) => Skip::Union(all(branches, skip)?),
        ("named", [at]) => Skip::Named(place(at)?),
        _ => return Err(ProgramError::of("a skip", json)),
    })
}

fn optional<T>(json: &Value, some: impl Fn(&Value) -> Result<T, ProgramError>) -> Result<Option<T>, ProgramError> {
    if json.is_null() { Ok(None) } else { some(json).map(Some) }
}

fn digits(json: &Value) -> Result<u8, ProgramError> {
    match whole(json)? {
        count @ 1..=38 => Ok(count as u8),
        _ => Err(ProgramError::of("a precision", json)),
    }
}
