//! Kafka messages between bytes and Python objects, by a description of their fields.
//!
//! Python describes each message class once per version. Reading then fills objects of that class, and writing reads
//! their attributes, without a Python call per field. The bytes come from a peer: `Reader` checks every length against
//! what is left.

use klamm_base::Uuid;
use klamm_base::primitives::{Reader, STRING_LEN_MAX, WireError, Writer};
use klamm_wire::versioned::{VersionedReader, VersionedWriter};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use pyo3::{ffi, intern};

use super::message_repeats::{Seen, Written};

/// The wire type of one value.
pub(super) enum Kind {
    Bool,
    Int8,
    Int16,
    ErrorCode,
    Int32,
    Int64,
    Uint16,
    Uint32,
    Float64,
    String,
    Bytes,
    Uuid,
    Struct(Py<MessageSchema>),
}

/// One field: its wire type, and the attribute that holds its value, if the class has one.
pub(super) struct Field {
    attribute: Option<Py<PyString>>,
    pub(super) kind: Kind,
    pub(super) is_array: bool,
    pub(super) is_nullable: bool,
    default: Py<PyAny>,
    from_wire: Option<Py<PyAny>>,
    to_wire: Option<Py<PyAny>>,
}

/// A field as Python describes it: attribute or None, kind (a name or a schema), whether it is an array, whether it is
/// nullable, tag or None, default, and optional functions that convert a value from and to its wire form.
type FieldSpec<'py> = (
    Option<Bound<'py, PyString>>,
    Bound<'py, PyAny>,
    bool,
    bool,
    Option<u32>,
    Bound<'py, PyAny>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
);

/// A structure of a message at one version, and the class of its objects.
#[pyclass(frozen, module = "klamm._engine.protocol")]
pub struct MessageSchema {
    class: Py<PyType>,
    new_object: Py<PyAny>,
    pub(super) is_flexible: bool,
    pub(super) fields: Vec<Field>,
    /// By ascending tag.
    pub(super) tagged: Vec<(u32, Field)>,
    /// Attributes without a field in this version, with their values.
    absent: Vec<(Py<PyString>, Py<PyAny>)>,
    /// The size of the smallest value in bytes.
    size_min: usize,
}

/// Why a message cannot be read: its bytes are wrong, or Python refused a value.
enum ReadError {
    Wire(WireError),
    Python(PyErr),
}

impl From<WireError> for ReadError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl From<PyErr> for ReadError {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<ReadError> for PyErr {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Wire(error) => PyValueError::new_err(error.to_string()),
            ReadError::Python(error) => error,
        }
    }
}

#[pymethods]
impl MessageSchema {
    #[new]
    fn new(
        class: Bound<'_, PyType>,
        is_flexible: bool,
        fields: Vec<FieldSpec<'_>>,
        absent: Vec<(Bound<'_, PyString>, Bound<'_, PyAny>)>,
    ) -> PyResult<Self> {
        let py = class.py();
        let mut schema = Self {
            new_object: py.get_type::<PyAny>().getattr(intern!(py, "__new__"))?.unbind(),
            class: class.unbind(),
            is_flexible,
            fields: Vec::new(),
            tagged: Vec::new(),
            absent: absent.into_iter().map(|(name, value)| (name.unbind(), value.unbind())).collect(),
            size_min: 0,
        };
        for (attribute, kind, is_array, is_nullable, tag, default, from_wire, to_wire) in fields {
            let field = Field {
                attribute: attribute.map(Bound::unbind),
                kind: Kind::from_python(&kind)?,
                is_array,
                is_nullable,
                default: default.unbind(),
                from_wire: from_wire.map(Bound::unbind),
                to_wire: to_wire.map(Bound::unbind),
            };
            match tag {
                Some(tag) => schema.tagged.push((tag, field)),
                None => schema.fields.push(field),
            }
        }
        schema.tagged.sort_by_key(|(tag, _)| *tag);
        let plain: usize = schema.fields.iter().map(|field| field.size_min(is_flexible)).sum();
        schema.size_min = plain + usize::from(is_flexible);
        Ok(schema)
    }

    /// Decodes the object in `body`. As in Kafka, bytes after it are ignored.
    fn read(&self, py: Python<'_>, body: &[u8]) -> PyResult<Py<PyAny>> {
        Ok(self.read_struct(py, &mut VersionedReader::new(body, self.is_flexible), &mut Seen::default())?)
    }

    fn error_codes(&self, body: &[u8]) -> Vec<(i16, u64)> {
        self.count_error_codes(body).into_iter().map(|(code, count)| (code.0, count)).collect()
    }

    /// The bytes of an object.
    fn write<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let mut writer = Writer::new();
        self.write_struct(value, &mut writer, &mut Written::default())?;
        Ok(PyBytes::new(value.py(), writer.as_slice()))
    }
}

impl MessageSchema {
    fn read_struct<'a, 'py>(
        &self,
        py: Python<'py>,
        reader: &mut VersionedReader<'a>,
        seen: &mut Seen<'a, 'py>,
    ) -> Result<Py<PyAny>, ReadError> {
        let object = self.new_object.bind(py).call1((self.class.bind(py),))?;
        for field in &self.fields {
            let value = field.read(py, reader, seen)?;
            field.set(&object, &value)?;
        }
        for (name, value) in &self.absent {
            set_slot(&object, name.bind(py), value.bind(py))?;
        }
        if self.is_flexible {
            self.read_tagged(&object, reader)?;
        }
        Ok(object.unbind())
    }

    fn read_tagged(&self, object: &Bound<'_, PyAny>, reader: &mut VersionedReader<'_>) -> Result<(), ReadError> {
        let py = object.py();
        for (_, field) in &self.tagged {
            field.set(object, field.default.bind(py))?;
        }
        let mut failed = None;
        let walked = reader.tags(|tag, left: &mut Reader<'_>| {
            let Some((_, field)) = self.tagged.iter().find(|(known, _)| *known == tag) else { return Ok(false) };
            let mut inner = VersionedReader::new(left.remaining(), true);
            match field.read(py, &mut inner, &mut Seen::default()).and_then(|value| Ok(field.set(object, &value)?)) {
                Ok(()) => *left = inner.reader,
                Err(ReadError::Wire(error)) => return Err(error),
                Err(ReadError::Python(error)) => failed = Some(error),
            }
            Ok(failed.is_none())
        });
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(walked?),
        }
    }

    fn write_struct<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        writer: &mut Writer,
        written: &mut Written<'py>,
    ) -> PyResult<()> {
        for field in &self.fields {
            field
                .write(&field.get(value)?, self.is_flexible, writer, written)
                .map_err(|error| self.blame(field, value, error))?;
        }
        if self.is_flexible {
            self.write_tagged(value, writer)?;
        }
        Ok(())
    }

    fn write_tagged(&self, value: &Bound<'_, PyAny>, writer: &mut Writer) -> PyResult<()> {
        let mut said = Vec::new();
        for (tag, field) in &self.tagged {
            let value = field.get(value)?;
            if !field.is_default(&value)? {
                said.push((*tag, field, value));
            }
        }
        writer.unsigned_varint(said.len() as u32);
        for (tag, field, inner) in said {
            let mut result = Ok(());
            writer.tagged_field(tag, |writer| result = field.write(&inner, true, writer, &mut Written::default()));
            result.map_err(|error| self.blame(field, value, error))?;
        }
        Ok(())
    }

    fn carries(&self, value: &Bound<'_, PyAny>) -> bool {
        value.get_type().is(self.class.bind(value.py()))
    }

    /// Whether two objects of the class are the same on the wire.
    fn says_the_same(&self, one: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mut fields = self.fields.iter().chain(self.tagged.iter().map(|(_, field)| field));
        fields.try_fold(true, |same, field| Ok(same && field.get(one)?.eq(field.get(other)?)?))
    }

    /// Names the attribute whose value does not fit.
    fn blame(&self, field: &Field, value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
        let py = value.py();
        let class = value.get_type();
        let name = field.attribute.as_ref().map_or_else(|| "(default)".to_owned(), |name| name.bind(py).to_string());
        PyTypeError::new_err(format!("{class}.{name}: {error}"))
    }
}

impl Kind {
    fn from_python(kind: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(schema) = kind.cast::<MessageSchema>() {
            return Ok(Self::Struct(schema.clone().unbind()));
        }
        Ok(match kind.extract::<&str>()? {
            "bool" => Self::Bool,
            "int8" => Self::Int8,
            "int16" => Self::Int16,
            "error_code" => Self::ErrorCode,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "uint16" => Self::Uint16,
            "uint32" => Self::Uint32,
            "float64" => Self::Float64,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "uuid" => Self::Uuid,
            other => return Err(PyValueError::new_err(format!("{other:?} is no kind of field"))),
        })
    }

    /// The size of the smallest value in bytes.
    pub(super) fn size_min(&self, is_flexible: bool) -> usize {
        match self {
            Self::Bool | Self::Int8 => 1,
            Self::Int16 | Self::ErrorCode | Self::Uint16 => 2,
            Self::Int32 | Self::Uint32 => 4,
            Self::Int64 | Self::Float64 => 8,
            Self::Uuid => 16,
            Self::String | Self::Bytes if is_flexible => 1,
            Self::String => 2,
            Self::Bytes => 4,
            Self::Struct(schema) => schema.get().size_min.max(1),
        }
    }
}

impl Field {
    fn size_min(&self, is_flexible: bool) -> usize {
        match &self.kind {
            _ if self.is_array => {
                if is_flexible {
                    1
                } else {
                    4
                }
            }
            Kind::Struct(_) if self.is_nullable => 1,
            kind => kind.size_min(is_flexible),
        }
    }

    fn set(&self, object: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match &self.attribute {
            Some(name) => set_slot(object, name.bind(object.py()), value),
            None => Ok(()),
        }
    }

    /// Whether a value is the default, as in most tagged fields; found without a Python call.
    fn is_default(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let default = self.default.bind(value.py());
        match &self.kind {
            Kind::Struct(schema) if !self.is_array && schema.get().carries(value) && schema.get().carries(default) => {
                schema.get().says_the_same(value, default)
            }
            _ => value.eq(default),
        }
    }

    fn get<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        match &self.attribute {
            Some(name) => object.getattr(name.bind(py)),
            None => Ok(self.default.bind(py).clone()),
        }
    }

    fn read<'a, 'py>(
        &self,
        py: Python<'py>,
        reader: &mut VersionedReader<'a>,
        seen: &mut Seen<'a, 'py>,
    ) -> Result<Bound<'py, PyAny>, ReadError> {
        if !self.is_array {
            return self.read_one(py, reader, seen, self.is_nullable);
        }
        let bytes = reader.reader.remaining();
        if let Some((array, len)) = seen.at_the_start_of(bytes, self.place()) {
            reader.reader.slice(len)?;
            return Ok(array);
        }
        let size_min = self.kind.size_min(reader.is_flexible());
        let Some(count) = reader.nullable_array_len(size_min)? else {
            return if self.is_nullable { Ok(py.None().into_bound(py)) } else { Err(WireError::UnexpectedNull.into()) };
        };
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.read_one(py, reader, seen, false)?);
        }
        let array = PyTuple::new(py, items)?.into_any();
        if matches!(self.kind, Kind::Struct(_)) {
            seen.put(self.place(), &bytes[..reader.position_in(bytes)], &array);
        }
        Ok(array)
    }

    /// Identifies the field among all fields of all schemas: no other field has this address.
    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn read_one<'a, 'py>(
        &self,
        py: Python<'py>,
        reader: &mut VersionedReader<'a>,
        seen: &mut Seen<'a, 'py>,
        is_nullable: bool,
    ) -> Result<Bound<'py, PyAny>, ReadError> {
        let value = self.read_plain(py, reader, seen, is_nullable)?;
        match &self.from_wire {
            Some(convert) => Ok(convert.bind(py).call1((value,))?),
            None => Ok(value),
        }
    }

    fn read_plain<'a, 'py>(
        &self,
        py: Python<'py>,
        reader: &mut VersionedReader<'a>,
        seen: &mut Seen<'a, 'py>,
        is_nullable: bool,
    ) -> Result<Bound<'py, PyAny>, ReadError> {
        Ok(match &self.kind {
            Kind::Bool => PyBool::new(py, reader.bool()?).to_owned().into_any(),
            Kind::Int8 => PyInt::new(py, reader.i8()?).into_any(),
            Kind::Int16 | Kind::ErrorCode => PyInt::new(py, reader.i16()?).into_any(),
            Kind::Int32 => PyInt::new(py, reader.i32()?).into_any(),
            Kind::Int64 => PyInt::new(py, reader.i64()?).into_any(),
            Kind::Uint16 => PyInt::new(py, reader.i16()? as u16).into_any(),
            Kind::Uint32 => PyInt::new(py, reader.i32()? as u32).into_any(),
            Kind::Float64 => PyFloat::new(py, f64::from_bits(reader.i64()? as u64)).into_any(),
            Kind::Uuid => PyBytes::new(py, &reader.uuid()?.0).into_any(),
            Kind::String => match reader.nullable_string()? {
                Some(text) => PyString::new(py, &text).into_any(),
                None => null(py, is_nullable)?,
            },
            Kind::Bytes => match reader.nullable_bytes()? {
                Some(bytes) => PyBytes::new(py, bytes).into_any(),
                None => null(py, is_nullable)?,
            },
            Kind::Struct(_) if is_nullable && reader.i8()? < 0 => null(py, true)?,
            Kind::Struct(schema) => schema.get().read_struct(py, reader, seen)?.into_bound(py),
        })
    }

    fn write<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        is_flexible: bool,
        writer: &mut Writer,
        written: &mut Written<'py>,
    ) -> PyResult<()> {
        if !self.is_array {
            return self.write_one(value, is_flexible, self.is_nullable, writer, written);
        }
        if let Some(range) = written.bytes_of(value, self.place()) {
            writer.repeat(range);
            return Ok(());
        }
        let start = writer.len();
        let mut out = VersionedWriter::new(writer, is_flexible);
        if value.is_none() && self.is_nullable {
            out.nullable_array_len(None);
            return Ok(());
        }
        if let Ok(items) = value.cast::<PyTuple>() {
            out.array_len(items.len());
            for item in items.iter() {
                self.write_one(&item, is_flexible, false, writer, written)?;
            }
            if matches!(self.kind, Kind::Struct(_)) {
                written.put(self.place(), value, start..writer.len());
            }
            return Ok(());
        }
        let items = value.cast::<PyList>()?;
        out.array_len(items.len());
        items.iter().try_for_each(|item| self.write_one(&item, is_flexible, false, writer, written))
    }

    fn write_one<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        is_flexible: bool,
        is_nullable: bool,
        writer: &mut Writer,
        written: &mut Written<'py>,
    ) -> PyResult<()> {
        match &self.to_wire {
            Some(convert) => {
                let value = convert.bind(value.py()).call1((value,))?;
                self.write_plain(&value, is_flexible, is_nullable, writer, written)
            }
            None => self.write_plain(value, is_flexible, is_nullable, writer, written),
        }
    }

    fn write_plain<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        is_flexible: bool,
        is_nullable: bool,
        writer: &mut Writer,
        written: &mut Written<'py>,
    ) -> PyResult<()> {
        let is_null = is_nullable && value.is_none();
        match &self.kind {
            Kind::Bool => writer.bool(value.is_truthy()?),
            Kind::Int8 => writer.i8(value.extract()?),
            Kind::Int16 | Kind::ErrorCode => writer.i16(value.extract()?),
            Kind::Int32 => writer.i32(value.extract()?),
            Kind::Int64 => writer.i64(value.extract()?),
            Kind::Uint16 => writer.i16(value.extract::<u16>()? as i16),
            Kind::Uint32 => writer.i32(value.extract::<u32>()? as i32),
            Kind::Float64 => writer.i64(value.extract::<f64>()?.to_bits() as i64),
            Kind::Uuid => writer.uuid(Uuid(value.extract()?)),
            Kind::String => write_string(value, is_null, is_flexible, writer)?,
            Kind::Bytes => write_bytes(value, is_null, is_flexible, writer)?,
            Kind::Struct(_) if is_null => writer.i8(-1),
            Kind::Struct(schema) => {
                if is_nullable {
                    writer.i8(1);
                }
                schema.get().write_struct(value, writer, written)?;
            }
        }
        Ok(())
    }
}

fn null(py: Python<'_>, is_nullable: bool) -> Result<Bound<'_, PyAny>, WireError> {
    if is_nullable { Ok(py.None().into_bound(py)) } else { Err(WireError::UnexpectedNull) }
}

fn write_string(value: &Bound<'_, PyAny>, is_null: bool, is_flexible: bool, writer: &mut Writer) -> PyResult<()> {
    let text = if is_null { None } else { Some(value.extract::<&str>()?) };
    if let Some(len) = text.map(str::len).filter(|&len| len > STRING_LEN_MAX) {
        return Err(PyValueError::new_err(format!("a string of {len} bytes, at most {STRING_LEN_MAX} are allowed")));
    }
    match is_flexible {
        true => writer.compact_nullable_string(text),
        false => writer.nullable_string(text),
    }
    Ok(())
}

fn write_bytes(value: &Bound<'_, PyAny>, is_null: bool, is_flexible: bool, writer: &mut Writer) -> PyResult<()> {
    let bytes = if is_null { None } else { Some(value.extract::<&[u8]>()?) };
    match is_flexible {
        true => writer.compact_nullable_bytes(bytes),
        false => writer.nullable_bytes(bytes),
    }
    Ok(())
}

/// Sets an attribute without the class's own `__setattr__`, which raises in a frozen dataclass.
fn set_slot(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: the three are live objects and this thread is attached to the interpreter, which `Bound` proves; the
    // function borrows them.
    let status = unsafe { ffi::PyObject_GenericSetAttr(object.as_ptr(), name.as_ptr(), value.as_ptr()) };
    if status == 0 { Ok(()) } else { Err(PyErr::fetch(object.py())) }
}
