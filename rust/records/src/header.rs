//! The 61 bytes at the start of every batch, read and patched in place (`DefaultRecordBatch`).
//!
//! | bytes | field | bytes | field |
//! |---|---|---|---|
//! | 0..8 | base offset | 27..35 | base timestamp |
//! | 8..12 | length of what follows | 35..43 | max timestamp |
//! | 12..16 | partition leader epoch | 43..51 | producer id |
//! | 16 | magic | 51..53 | producer epoch |
//! | 17..21 | CRC-32C of 21.. | 53..57 | base sequence |
//! | 21..23 | attributes | 57..61 | record count |
//! | 23..27 | last offset delta | | |

/// Bytes before the first record.
pub const HEADER_LEN: usize = 61;
/// Bytes before the bytes that the length field counts.
pub const LENGTH_PREFIX: usize = 12;

pub(crate) const COMPRESSION_MASK: i16 = 0x07;
pub(crate) const TIMESTAMP_TYPE_BIT: i16 = 0x08;
pub(crate) const TRANSACTIONAL_BIT: i16 = 0x10;
pub(crate) const CONTROL_BIT: i16 = 0x20;
pub(crate) const DELETE_HORIZON_BIT: i16 = 0x40;

/// A batch header over bytes that begin with it. Only the first [`HEADER_LEN`] bytes are read.
#[derive(Clone, Copy)]
pub struct Header<'a> {
    bytes: &'a [u8; HEADER_LEN],
}

macro_rules! be {
    ($name:ident, $ty:ty, $at:literal, $doc:literal) => {
        #[doc = $doc]
        #[inline]
        pub fn $name(&self) -> $ty {
            // `copy_from_slice` would be a call.
            let raw = self.bytes[$at..].first_chunk().expect("a field of the header");
            <$ty>::from_be_bytes(*raw)
        }
    };
}

impl<'a> Header<'a> {
    /// The header at the start of `bytes`; `None` when there are fewer than [`HEADER_LEN`] bytes.
    #[inline]
    pub fn at_start_of(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self { bytes })
    }

    be!(base_offset, i64, 0, "Offset of the first record.");
    be!(length, i32, 8, "Bytes after the length field, as written: not yet trusted.");
    be!(leader_epoch, i32, 12, "Epoch of the leader that appended the batch.");
    be!(magic, i8, 16, "Message format version; 2 is the only one read here.");
    be!(crc, u32, 17, "CRC-32C of everything from the attributes on.");
    be!(attributes, i16, 21, "Attribute bits.");
    be!(last_offset_delta, i32, 23, "Last offset minus base offset.");
    be!(base_timestamp, i64, 27, "Timestamp in ms of the first record, or the delete horizon.");
    be!(max_timestamp, i64, 35, "Largest timestamp in ms, or the append time.");
    be!(producer_id, i64, 43, "Producer id, -1 when not idempotent.");
    be!(producer_epoch, i16, 51, "Producer epoch, -1 when not idempotent.");
    be!(base_sequence, i32, 53, "Sequence of the first record, -1 when not idempotent.");
    be!(record_count, i32, 57, "Number of records, as written: not yet trusted.");

    /// Size in bytes of the whole batch as the length field claims; `None` when it cannot hold a header.
    #[inline]
    pub fn size(&self) -> Option<usize> {
        let size = usize::try_from(self.length()).ok()? + LENGTH_PREFIX;
        (size >= HEADER_LEN).then_some(size)
    }

    /// Offset of the last record.
    #[inline]
    pub fn last_offset(&self) -> i64 {
        self.base_offset().wrapping_add(i64::from(self.last_offset_delta()))
    }

    /// Offset after the last record.
    #[inline]
    pub fn next_offset(&self) -> i64 {
        self.last_offset().wrapping_add(1)
    }

    /// The three compression bits: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd, others not assigned.
    #[inline]
    pub fn compression_id(&self) -> i16 {
        self.attributes() & COMPRESSION_MASK
    }

    /// Whether the batch carries the leader's append time instead of its producer's times.
    #[inline]
    pub fn is_log_append_time(&self) -> bool {
        self.attributes() & TIMESTAMP_TYPE_BIT != 0
    }

    /// Whether the batch belongs to a transaction.
    #[inline]
    pub fn is_transactional(&self) -> bool {
        self.attributes() & TRANSACTIONAL_BIT != 0
    }

    /// Whether the batch holds control records (markers, leader changes, snapshot frames).
    #[inline]
    pub fn is_control(&self) -> bool {
        self.attributes() & CONTROL_BIT != 0
    }

    /// Whether the base timestamp is the delete horizon that compaction set (KIP-534).
    #[inline]
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes() & DELETE_HORIZON_BIT != 0
    }

    /// Whether a producer id is set.
    #[inline]
    pub fn has_producer_id(&self) -> bool {
        self.producer_id() >= 0
    }
}

/// Sets the batch's position in the log. Both fields are outside the CRC.
#[inline]
pub fn set_position(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    let header: &mut [u8; HEADER_LEN] = batch.first_chunk_mut().expect("a batch holds a header");
    *header[0..].first_chunk_mut().expect("a field of the header") = base_offset.to_be_bytes();
    *header[12..].first_chunk_mut().expect("a field of the header") = leader_epoch.to_be_bytes();
}

/// The CRC-32C of the batch that is all of `batch`.
#[inline]
pub fn compute_crc(batch: &[u8]) -> u32 {
    crc32c::crc32c(&batch[21..])
}

/// Stores the CRC of the batch that is all of `batch`, after bytes from 21 on were changed.
#[inline]
pub fn set_crc(batch: &mut [u8]) {
    let crc = compute_crc(batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}
