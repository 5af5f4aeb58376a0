//! Columns under construction in Arrow's layout, with their children.

use crate::validity::{set_bit, truncate_bits};
use crate::{Bad, ProgramError, Shape, Validity};

/// A column of `len` values.
#[derive(Clone, Debug)]
pub struct Column {
    pub len: usize,
    pub validity: Validity,
    pub data: Data,
}

/// What a column contains. Offsets begin with 0, and there is one more than values.
#[derive(Clone, Debug)]
pub enum Data {
    Null,
    /// One bit per value, lowest first.
    Bits(Vec<u8>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    /// Decimals, without their point.
    Int128(Vec<i128>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Bytes {
        offsets: Vec<i32>,
        bytes: Vec<u8>,
        is_text: bool,
    },
    /// Lists; or maps, whose items are pairs.
    List {
        offsets: Vec<i32>,
        items: Box<Column>,
    },
    Struct(Vec<Column>),
}

impl Column {
    /// An empty column of this type.
    pub fn of(shape: &Shape) -> Result<Self, ProgramError> {
        let format = shape.format.as_str();
        let data = match format {
            "n" => Data::Null,
            "b" => Data::Bits(Vec::new()),
            "i" | "tdD" => Data::Int32(Vec::new()),
            "l" | "tsu:" | "tsu:UTC" | "tDu" => Data::Int64(Vec::new()),
            "f" => Data::Float32(Vec::new()),
            "g" => Data::Float64(Vec::new()),
            "z" | "u" => Data::Bytes { offsets: vec![0], bytes: Vec::new(), is_text: format == "u" },
            "+l" | "+m" => Data::List { offsets: vec![0], items: Box::new(Self::of(&shape.children[0].1)?) },
            "+s" => Data::Struct(shape.children.iter().map(|(_, child)| Self::of(child)).collect::<Result<_, _>>()?),
            _ if format.starts_with("d:") => Data::Int128(Vec::new()),
            _ => return Err(ProgramError(format!("the type '{format}' is not supported"))),
        };
        Ok(Self { len: 0, validity: Validity::default(), data })
    }

    /// Counts a value that was appended to `data`.
    #[inline]
    pub fn grown(&mut self) {
        self.validity.push(self.len, true);
        self.len += 1;
    }

    /// Appends a null.
    pub fn push_null(&mut self) {
        match &mut self.data {
            Data::Null => {}
            Data::Bits(bits) => set_bit(bits, self.len, false),
            Data::Int32(numbers) => numbers.push(0),
            Data::Int64(numbers) => numbers.push(0),
            Data::Int128(numbers) => numbers.push(0),
            Data::Float32(numbers) => numbers.push(0.0),
            Data::Float64(numbers) => numbers.push(0.0),
            Data::Bytes { offsets, .. } | Data::List { offsets, .. } => offsets.push(last(offsets)),
            Data::Struct(children) => children.iter_mut().for_each(Self::push_null),
        }
        self.validity.push(self.len, false);
        self.len += 1;
    }

    /// Drops the values from `len` on, including an incomplete one, where only some of the children have grown.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.data {
            Data::Null => {}
            Data::Bits(bits) => truncate_bits(bits, len),
            Data::Int32(numbers) => numbers.truncate(len),
            Data::Int64(numbers) => numbers.truncate(len),
            Data::Int128(numbers) => numbers.truncate(len),
            Data::Float32(numbers) => numbers.truncate(len),
            Data::Float64(numbers) => numbers.truncate(len),
            Data::Bytes { offsets, bytes, .. } => {
                offsets.truncate(len + 1);
                bytes.truncate(last(offsets) as usize);
            }
            Data::List { offsets, items } => {
                offsets.truncate(len + 1);
                items.truncate(last(offsets) as usize);
            }
            Data::Struct(children) => children.iter_mut().for_each(|child| child.truncate(len)),
        }
        self.validity.truncate(len, self.len);
        self.len = self.len.min(len);
    }

    /// Panics unless all children have the lengths that Arrow requires, and offsets ascend.
    pub fn check_invariants(&self) {
        let of_offsets = |offsets: &[i32], end: usize| {
            assert_eq!(offsets.len(), self.len + 1);
            assert!(offsets.first() == Some(&0) && offsets.is_sorted());
            assert_eq!(last(offsets) as usize, end);
        };
        match &self.data {
            Data::Null => {}
            Data::Bits(bits) => assert_eq!(bits.len(), self.len.div_ceil(8)),
            Data::Int32(numbers) => assert_eq!(numbers.len(), self.len),
            Data::Int64(numbers) => assert_eq!(numbers.len(), self.len),
            Data::Int128(numbers) => assert_eq!(numbers.len(), self.len),
            Data::Float32(numbers) => assert_eq!(numbers.len(), self.len),
            Data::Float64(numbers) => assert_eq!(numbers.len(), self.len),
            Data::Bytes { offsets, bytes, is_text } => {
                of_offsets(offsets, bytes.len());
                assert!(!is_text || std::str::from_utf8(bytes).is_ok());
            }
            Data::List { offsets, items } => {
                of_offsets(offsets, items.len);
                items.check_invariants();
            }
            Data::Struct(children) => {
                children.iter().for_each(|child| assert_eq!(child.len, self.len));
                children.iter().for_each(Self::check_invariants);
            }
        }
        assert!(self.validity.null_count() <= self.len);
    }

    /// A boolean.
    #[inline]
    pub fn push_bit(&mut self, bit: bool) {
        if let Data::Bits(bits) = &mut self.data {
            set_bit(bits, self.len, bit);
            self.grown();
        }
    }

    /// Reserves memory for `count` more values, at the top level.
    pub fn reserve(&mut self, count: usize) {
        match &mut self.data {
            Data::Null => {}
            Data::Bits(bits) => bits.reserve(count / 8),
            Data::Int32(numbers) => numbers.reserve(count),
            Data::Int64(numbers) => numbers.reserve(count),
            Data::Int128(numbers) => numbers.reserve(count),
            Data::Float32(numbers) => numbers.reserve(count),
            Data::Float64(numbers) => numbers.reserve(count),
            Data::Bytes { offsets, .. } | Data::List { offsets, .. } => offsets.reserve(count),
            Data::Struct(children) => children.iter_mut().for_each(|child| child.reserve(count)),
        }
    }
}

#[inline]
fn last(offsets: &[i32]) -> i32 {
    offsets.last().copied().unwrap_or(0)
}

/// Appends a byte string, which must be UTF-8 in a column of texts.
#[inline]
pub fn push_bytes(offsets: &mut Vec<i32>, bytes: &mut Vec<u8>, is_text: bool, value: &[u8]) -> Result<(), Bad> {
    if is_text && std::str::from_utf8(value).is_err() {
        return Err(Bad::NotUtf8);
    }
    let end = i32::try_from(bytes.len() + value.len()).map_err(|_| Bad::ColumnFull)?;
    bytes.extend_from_slice(value);
    offsets.push(end);
    Ok(())
}

/// Ends a list after its last item.
#[inline]
pub fn end_list(offsets: &mut Vec<i32>, items: &Column) -> Result<(), Bad> {
    offsets.push(i32::try_from(items.len).map_err(|_| Bad::ColumnFull)?);
    Ok(())
}
