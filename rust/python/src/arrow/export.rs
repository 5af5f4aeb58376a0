//! Exports columns: each structure keeps the columns alive until its consumer releases it.

use std::borrow::Cow;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::ffi::{ArrowArray, ArrowSchema, NULLABLE};
use crate::records::columns::{Elements, GrowingBytes};

/// A column in Arrow's layout.
pub struct Column {
    pub name: Cow<'static, str>,
    /// The type as a format string of the interface.
    pub format: Cow<'static, str>,
    pub is_nullable: bool,
    pub length: usize,
    pub null_count: usize,
    /// The validity bitmap first; absent if no value is null.
    pub buffers: Vec<Option<Elements>>,
    pub children: Vec<Column>,
}

impl Column {
    /// Numbers without nulls.
    pub fn numbers(name: &'static str, format: &'static str, length: usize, numbers: Elements) -> Self {
        let buffers = vec![None, Some(numbers)];
        let (name, format) = (name.into(), format.into());
        Self { name, format, is_nullable: false, length, null_count: 0, buffers, children: Vec::new() }
    }

    /// Byte strings or texts with 32-bit offsets.
    pub fn bytes(name: &'static str, format: &'static str, is_nullable: bool, column: GrowingBytes) -> Self {
        let (length, null_count) = (column.len(), column.validity.null_count);
        let (offsets, data) = (Elements::Int32(column.offsets), Elements::Bytes(column.data));
        let buffers = vec![column.validity.buffer(), Some(offsets), Some(data)];
        let (name, format) = (name.into(), format.into());
        Self { name, format, is_nullable, length, null_count, buffers, children: Vec::new() }
    }

    /// Rows of other columns, all of the same length.
    pub fn rows(name: &'static str, length: usize, children: Vec<Column>) -> Self {
        let (name, format) = (name.into(), "+s".into());
        Self { name, format, is_nullable: false, length, null_count: 0, buffers: vec![None], children }
    }
}

/// The capsules that `__arrow_c_array__` returns: schema and array.
pub fn capsules<'py>(
    py: Python<'py>,
    column: &Arc<Column>,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let schema = PyCapsule::new_with_value(py, schema_of(column), c"arrow_schema")?;
    let array = PyCapsule::new_with_value(py, array_of(column, column), c"arrow_array")?;
    Ok((schema, array))
}

/// The target of a schema's pointers.
struct OwnedSchema {
    format: CString,
    name: CString,
    children: Vec<*mut ArrowSchema>,
}

fn schema_of(column: &Column) -> ArrowSchema {
    // A name with a zero byte would end before it; no schema has one.
    let text = |text: &str| CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default();
    let children = column.children.iter().map(|child| Box::into_raw(Box::new(schema_of(child)))).collect();
    let mut owned = Box::new(OwnedSchema { format: text(&column.format), name: text(&column.name), children });
    ArrowSchema {
        format: owned.format.as_ptr(),
        name: owned.name.as_ptr(),
        metadata: ptr::null(),
        flags: if column.is_nullable { NULLABLE } else { 0 },
        n_children: owned.children.len() as i64,
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(owned).cast(),
    }
}

/// # Safety
///
/// `schema` is one of [`schema_of`] that was not released.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the caller's promise.
    let schema = unsafe { &mut *schema };
    // SAFETY: `schema_of` put a box there, and this is the only call.
    let owned = unsafe { Box::from_raw(schema.private_data.cast::<OwnedSchema>()) };
    for child in &owned.children {
        // SAFETY: also a box of `schema_of`; dropping one that was moved away releases nothing.
        drop(unsafe { Box::from_raw(*child) });
    }
    schema.release = None;
}

/// The target of an array's pointers.
struct OwnedArray {
    /// Keeps the buffers of all columns.
    _root: Arc<Column>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

fn array_of(root: &Arc<Column>, column: &Column) -> ArrowArray {
    let address = |buffer: &Option<Elements>| buffer.as_ref().map_or(ptr::null(), |held| held.address_and_size().0);
    let buffers = column.buffers.iter().map(address).collect();
    let children = column.children.iter().map(|child| Box::into_raw(Box::new(array_of(root, child)))).collect();
    let mut owned = Box::new(OwnedArray { _root: root.clone(), buffers, children });
    ArrowArray {
        length: column.length as i64,
        null_count: column.null_count as i64,
        offset: 0,
        n_buffers: owned.buffers.len() as i64,
        n_children: owned.children.len() as i64,
        buffers: owned.buffers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(owned).cast(),
    }
}

/// # Safety
///
/// `array` is one of [`array_of`] that was not released.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the caller's promise.
    let array = unsafe { &mut *array };
    // SAFETY: `array_of` put a box there, and this is the only call.
    let owned = unsafe { Box::from_raw(array.private_data.cast::<OwnedArray>()) };
    for child in &owned.children {
        // SAFETY: also a box of `array_of`; dropping one that was moved away releases nothing.
        drop(unsafe { Box::from_raw(*child) });
    }
    array.release = None;
}
