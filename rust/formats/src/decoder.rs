//! Decodes values to a column, each with the program of its schema.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use crate::cursor::Cursor;
use crate::program::ProgramError;
use crate::{Bad, Column, Shape, avro, header, protobuf};

/// What to do with the values of a schema.
#[derive(Clone, Debug)]
enum Program {
    Avro(avro::Program),
    Protobuf(protobuf::Program),
    /// Values of this schema cannot be read.
    Refused(Arc<str>),
}

/// Decodes values of any number of schemas to one type.
#[derive(Clone, Debug)]
pub struct Decoder {
    shape: Shape,
    /// Whether values begin with Confluent's header.
    is_framed: bool,
    programs: HashMap<u32, Arc<Program>>,
    /// For values without a header, and for ids without a program of their own.
    default: Option<Arc<Program>>,
}

/// The decoded values, with null where a value is null or bad.
#[derive(Debug)]
pub struct Decoded {
    pub column: Column,
    /// The indexes of bad values, ascending.
    pub bad: Vec<usize>,
    /// The error of the first bad value.
    pub why: Option<Bad>,
}

impl Decoder {
    pub fn new(shape: Shape, is_framed: bool) -> Result<Self, ProgramError> {
        Column::of(&shape)?;
        Ok(Self { shape, is_framed, programs: HashMap::new(), default: None })
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Adds the program for values with this schema id, or the default program when there is no id.
    ///
    /// A program is `{"avro": ...}`, `{"protobuf": ...}` or `{"refused": why}`.
    pub fn learn(&mut self, schema_id: Option<u32>, json: &str) -> Result<(), ProgramError> {
        let value: Value = serde_json::from_str(json).map_err(|error| ProgramError(error.to_string()))?;
        let program = Arc::new(if let Some(program) = value.get("avro") {
            Program::Avro(avro::Program::parse(program, &self.shape)?)
        } else if let Some(program) = value.get("protobuf") {
            Program::Protobuf(protobuf::Program::parse(program, &self.shape)?)
        } else {
            Program::Refused(value["refused"].as_str().ok_or_else(|| ProgramError::of("a program", &value))?.into())
        });
        match schema_id {
            Some(id) => drop(self.programs.insert(id, program)),
            None => self.default = Some(program),
        }
        Ok(())
    }

    /// The schema ids of the values for which there is no program, each once, in order of appearance.
    pub fn unknown<'a>(&self, values: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u32> {
        let mut found = Vec::new();
        if !self.is_framed || self.default.is_some() {
            return found;
        }
        let mut seen = HashSet::new();
        let mut last = None;
        for bytes in values.flatten() {
            let Ok(id) = header::schema_id(&mut Cursor::new(bytes)) else { continue };
            if last != Some(id) && !self.programs.contains_key(&id) && seen.insert(id) {
                found.push(id);
            }
            last = Some(id);
        }
        found
    }

    /// Decodes all values to a column; bad values are null and reported.
    pub fn decode<'a>(&self, values: impl ExactSizeIterator<Item = Option<&'a [u8]>>) -> Decoded {
        let mut column = Column::of(&self.shape).expect("`new` has made one");
        column.reserve(values.len());
        let mut decoded = Decoded { column, bad: Vec::new(), why: None };
        let mut last = None;
        for (place, value) in values.enumerate() {
            let Some(bytes) = value else {
                decoded.column.push_null();
                continue;
            };
            if let Err(why) = self.decode_one(bytes, &mut decoded.column, &mut last) {
                decoded.column.truncate(place);
                decoded.column.push_null();
                decoded.bad.push(place);
                decoded.why.get_or_insert(why);
            }
        }
        decoded
    }

    /// `last` is the program of the previous value: most values have the same schema.
    fn decode_one<'s>(
        &'s self,
        bytes: &[u8],
        column: &mut Column,
        last: &mut Option<(u32, &'s Program)>,
    ) -> Result<(), Bad> {
        let mut from = Cursor::new(bytes);
        let id = if self.is_framed { header::schema_id(&mut from)? } else { 0 };
        let program = match *last {
            Some((known, program)) if known == id => program,
            _ => self.programs.get(&id).or(self.default.as_ref()).ok_or(Bad::UnknownSchema(id))?,
        };
        *last = Some((id, program));
        match program {
            Program::Avro(program) => program.read(&mut from, column),
            Program::Protobuf(program) => program.read(&mut from, self.is_framed, column),
            Program::Refused(why) => Err(Bad::Refused(why.clone())),
        }
    }
}
