//! Converts decoded columns to exported ones.

use klamm_formats::{Column, Data, Shape};

use crate::arrow::export;
use crate::records::columns::Elements;

/// The column with its names and types.
pub fn exported(name: &str, shape: &Shape, column: Column, is_nullable: bool) -> export::Column {
    let (length, null_count) = (column.len, column.validity.null_count());
    let validity = column.validity.into_bits().map(Elements::Bytes);
    let (rest, children) = parts(shape, column.data);
    let mut buffers = Vec::with_capacity(3);
    if shape.format != "n" {
        buffers.push(validity);
    }
    buffers.extend(rest.into_iter().map(Some));
    let (name, format) = (name.to_owned().into(), shape.format.clone().into());
    export::Column { name, format, is_nullable, length, null_count, buffers, children }
}

/// The buffers after the validity bitmap, and the child columns.
fn parts(shape: &Shape, data: Data) -> (Vec<Elements>, Vec<export::Column>) {
    let child = |at: usize, column: Column, is_nullable: bool| {
        let (name, shape) = &shape.children[at];
        exported(name, shape, column, is_nullable)
    };
    match data {
        Data::Null => (vec![], vec![]),
        Data::Bits(bits) => (vec![Elements::Bytes(bits)], vec![]),
        Data::Int32(numbers) => (vec![Elements::Int32(numbers)], vec![]),
        Data::Int64(numbers) => (vec![Elements::Int64(numbers)], vec![]),
        Data::Int128(numbers) => (vec![Elements::Int128(numbers)], vec![]),
        Data::Float32(numbers) => (vec![Elements::Float32(numbers)], vec![]),
        Data::Float64(numbers) => (vec![Elements::Float64(numbers)], vec![]),
        Data::Bytes { offsets, bytes, .. } => (vec![Elements::Int32(offsets), Elements::Bytes(bytes)], vec![]),
        Data::List { offsets, items } if shape.format == "+m" => {
            (vec![Elements::Int32(offsets)], vec![pairs(shape, *items)])
        }
        Data::List { offsets, items } => (vec![Elements::Int32(offsets)], vec![child(0, *items, true)]),
        Data::Struct(columns) => {
            (vec![], columns.into_iter().enumerate().map(|(at, column)| child(at, column, true)).collect())
        }
    }
}

/// The entries of maps, which are never null, nor are their keys.
fn pairs(shape: &Shape, mut entries: Column) -> export::Column {
    let (name, shape) = &shape.children[0];
    let length = entries.len;
    let columns = match &mut entries.data {
        Data::Struct(columns) => std::mem::take(columns),
        _ => Vec::new(),
    };
    let children = columns.into_iter().zip(&shape.children).enumerate();
    let children = children.map(|(at, (column, (name, shape)))| exported(name, shape, column, at > 0)).collect();
    export::Column { name: name.clone().into(), ..export::Column::rows("", length, children) }
}
