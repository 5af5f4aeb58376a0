//! What a leader checks before it appends a produced batch, in Apache Kafka's order (ProduceRequest,
//! `UnifiedLog.analyzeAndValidateRecords`, LogValidator).

use crate::batch::Batch;
use crate::codec::Codec;
use crate::error::{RecordFault, RecordsError, Refusal, RefusedRecords};
use crate::header::Header;
use crate::walk::{Shape, Walked, walk};

/// The timestamp of a record without one.
pub const NO_TIMESTAMP: i64 = -1;

/// Which time the records of a topic carry (`message.timestamp.type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// The source of an append to the leader's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A Produce request.
    Client,
    /// A coordinator of this node: transaction markers and offset commits.
    Coordinator,
}

/// What the topic and the request allow.
#[derive(Clone, Debug)]
pub struct ProduceRules {
    pub origin: Origin,
    /// The time of the append in ms.
    pub now_ms: i64,
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`; i64::MAX is no limit.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// Whether the topic is compacted, so that every record needs a key.
    pub compacted: bool,
    /// `max.message.bytes`: the largest batch, as sent.
    pub batch_bytes_max: usize,
    /// Produce version 7 brought zstd (KIP-110).
    pub zstd_allowed: bool,
    /// Most bytes the records may take when decompressed; Apache Kafka has no such limit.
    pub decompressed_bytes_max: usize,
}

impl ProduceRules {
    /// A limit that no producer with reasonable batches reaches.
    pub const DECOMPRESSED_BYTES_MAX: usize = 128 * 1024 * 1024;

    /// The defaults of Apache Kafka's topics, for a batch that a client appends at `now_ms`.
    pub fn of_client(now_ms: i64) -> Self {
        Self {
            origin: Origin::Client,
            now_ms,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compacted: false,
            batch_bytes_max: 1_048_588,
            zstd_allowed: true,
            decompressed_bytes_max: Self::DECOMPRESSED_BYTES_MAX,
        }
    }
}

/// A batch that may be appended, and what the check found.
#[derive(Clone, Copy)]
pub struct Produced<'a> {
    pub batch: Batch<'a>,
    /// Number of records, at least 1.
    pub record_count: i32,
    /// Largest timestamp in ms of the records, [`NO_TIMESTAMP`] when none has one; for LogAppendTime the
    /// append time.
    pub max_timestamp: i64,
    /// Offset delta of the first record with that timestamp; for LogAppendTime that of the last record.
    pub max_timestamp_delta: i32,
    /// False when the records must be renumbered before the batch is stored (`convert::rebuild`).
    pub offsets_consecutive: bool,
    /// Bytes of the records, decompressed.
    pub uncompressed_bytes: usize,
}

impl Produced<'_> {
    /// Whether the header must be patched before the batch is stored (`convert::set_max_timestamp`).
    pub fn needs_timestamp(&self, timestamp_type: TimestampType) -> bool {
        timestamp_type == TimestampType::LogAppendTime || self.batch.header().max_timestamp() != self.max_timestamp
    }
}

/// Checks the records of one partition of a Produce request.
///
/// Reads every byte: the CRC and each record, decompressed if necessary. Allocates nothing for a valid uncompressed
/// batch; decompresses into a window that the thread keeps.
pub fn validate_produced<'a>(bytes: &'a [u8], rules: &ProduceRules) -> Result<Produced<'a>, RecordsError> {
    let batch = only_batch(bytes)?;
    check_size_and_crc(batch, rules)?;
    check_header(&batch.header(), rules)?;
    walk_produced(batch, rules)
}

fn only_batch(bytes: &[u8]) -> Result<Batch<'_>, RecordsError> {
    if bytes.is_empty() {
        return Err(RecordsError::NoBatch);
    }
    let batch = Batch::at_start_of(bytes)?;
    match bytes.len() - batch.bytes().len() {
        0 => Ok(batch),
        bytes => Err(RecordsError::MoreThanOneBatch { bytes }),
    }
}

fn check_size_and_crc(batch: Batch<'_>, rules: &ProduceRules) -> Result<(), RecordsError> {
    let codec = batch.codec();
    if codec == Ok(Codec::Zstd) && !rules.zstd_allowed {
        return Err(RecordsError::ZstdTooEarly);
    }
    let base_offset = batch.header().base_offset();
    if rules.origin == Origin::Client && base_offset != 0 {
        return Err(RecordsError::BaseOffsetNotZero { base_offset });
    }
    let (size, max) = (batch.bytes().len(), rules.batch_bytes_max);
    if size > max {
        return Err(RecordsError::BatchTooLarge { size, max });
    }
    batch.check_crc()?;
    codec.map(|_| ())
}

fn check_header(header: &Header<'_>, rules: &ProduceRules) -> Result<(), RecordsError> {
    let (count, last_offset_delta) = (header.record_count(), header.last_offset_delta());
    if count <= 0 || last_offset_delta != count - 1 {
        return Err(RecordsError::BadCount { count, last_offset_delta });
    }
    if rules.origin == Origin::Client {
        check_client_header(header)?;
    }
    Ok(())
}

fn check_client_header(header: &Header<'_>) -> Result<(), RecordsError> {
    // The cleaner sets the delete horizon. The nine bits above it are unassigned, and Apache Kafka ignores them.
    const NOT_A_PRODUCERS: i16 = 0x40;
    let attributes = header.attributes();
    if header.is_control() {
        return Err(RecordsError::ControlFromClient);
    }
    if attributes & NOT_A_PRODUCERS != 0 {
        return Err(RecordsError::ReservedAttributes { attributes });
    }
    if header.is_log_append_time() {
        return Err(RecordsError::LogAppendTimeFromProducer);
    }
    let sequence = header.base_sequence();
    if header.has_producer_id() && sequence < 0 {
        return Err(RecordsError::BadProducer { producer_id: header.producer_id(), sequence });
    }
    if header.is_transactional() && !header.has_producer_id() {
        return Err(RecordsError::TransactionalWithoutProducer);
    }
    Ok(())
}

fn walk_produced<'a>(batch: Batch<'a>, rules: &ProduceRules) -> Result<Produced<'a>, RecordsError> {
    let mut check = RecordCheck::new(batch.header().base_timestamp(), rules);
    let walked = walk(batch, rules.decompressed_bytes_max, |index, shape| check.on_record(index, shape))?;
    if check.refused.count > 0 {
        return Err(RecordsError::Refused(Box::new(check.refused)));
    }
    let record_count = batch.header().record_count();
    let (max_timestamp, max_timestamp_delta) = match rules.timestamp_type {
        TimestampType::CreateTime => (check.max_timestamp, check.max_timestamp_delta),
        TimestampType::LogAppendTime => (rules.now_ms, record_count - 1),
    };
    let Walked { bytes: uncompressed_bytes, offsets_consecutive } = walked;
    Ok(Produced { batch, record_count, max_timestamp, max_timestamp_delta, offsets_consecutive, uncompressed_bytes })
}

/// The rules for single records, and what was found so far.
struct RecordCheck {
    base_timestamp: i64,
    earliest: i64,
    latest: i64,
    compacted: bool,
    max_timestamp: i64,
    max_timestamp_delta: i32,
    refused: RefusedRecords,
}

impl RecordCheck {
    fn new(base_timestamp: i64, rules: &ProduceRules) -> Self {
        let (earliest, latest) = match rules.timestamp_type {
            TimestampType::CreateTime => (
                rules.now_ms.saturating_sub(rules.timestamp_before_max_ms),
                rules.now_ms.saturating_add(rules.timestamp_after_max_ms),
            ),
            TimestampType::LogAppendTime => (i64::MIN, i64::MAX),
        };
        Self {
            base_timestamp,
            earliest,
            latest,
            compacted: rules.compacted,
            max_timestamp: NO_TIMESTAMP,
            max_timestamp_delta: 0,
            refused: RefusedRecords::default(),
        }
    }

    /// Whether another record of this shape that follows it needs no check.
    #[inline(always)]
    fn on_record(&mut self, index: i32, shape: Shape) -> Result<bool, RecordsError> {
        let Some(timestamp) = self.base_timestamp.checked_add(shape.timestamp_delta) else {
            return Err(RecordsError::BadRecord { index, fault: RecordFault::TimestampOverflow });
        };
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.max_timestamp_delta = index;
        }
        if self.compacted && !shape.has_key {
            self.refused.push(index, Refusal::KeyMissing);
            return Ok(false);
        }
        if (timestamp < self.earliest || timestamp > self.latest) && timestamp != NO_TIMESTAMP {
            let (earliest, latest) = (self.earliest, self.latest);
            self.refused.push(index, Refusal::TimestampOutOfRange { timestamp, earliest, latest });
            return Ok(false);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{BatchBuilder, BatchFields};
    use crate::codec::Compression;
    use crate::header::set_crc;

    const NOW: i64 = 1_700_000_000_000;

    fn rules() -> ProduceRules {
        ProduceRules::of_client(NOW)
    }

    fn batch_of(codec: Codec, fields: BatchFields, timestamps: &[i64]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(fields, Compression::of(codec));
        for timestamp in timestamps {
            builder.append(*timestamp, Some(b"key"), Some(&[7; 200]), &[]).expect("small");
        }
        builder.finish().expect("small")
    }

    fn plain() -> Vec<u8> {
        batch_of(Codec::None, BatchFields::default(), &[NOW - 5, NOW, NOW - 3])
    }

    /// The batch with changed header bytes and a matching CRC.
    fn patched(mut batch: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        set_crc(&mut batch);
        batch
    }

    fn error_of(batch: &[u8], rules: &ProduceRules) -> RecordsError {
        match validate_produced(batch, rules) {
            Ok(_) => panic!("the batch was taken"),
            Err(error) => error,
        }
    }

    #[test]
    fn a_valid_batch_of_every_codec_is_accepted() {
        for codec in Codec::ALL {
            let bytes = batch_of(codec, BatchFields::default(), &[NOW - 5, NOW, NOW - 3]);
            let produced = validate_produced(&bytes, &rules()).expect("valid");
            assert_eq!((produced.record_count, produced.max_timestamp, produced.max_timestamp_delta), (3, NOW, 1));
            assert!(produced.offsets_consecutive);
            assert!(!produced.needs_timestamp(TimestampType::CreateTime));
            let raw = batch_of(Codec::None, BatchFields::default(), &[NOW - 5, NOW, NOW - 3]);
            assert_eq!(produced.uncompressed_bytes, raw.len() - crate::HEADER_LEN);
        }
    }

    #[test]
    fn what_surrounds_the_batch_is_checked() {
        let good = plain();
        assert_eq!(error_of(&[], &rules()), RecordsError::NoBatch);
        assert_eq!(error_of(&good[..good.len() - 1], &rules()).error_code(), 87);
        let twice = [good.clone(), good.clone()].concat();
        assert_eq!(error_of(&twice, &rules()), RecordsError::MoreThanOneBatch { bytes: good.len() });
        for magic in [0, 1] {
            assert_eq!(error_of(&patched(good.clone(), 16, &[magic]), &rules()).error_code(), 87);
        }
        assert_eq!(error_of(&patched(good.clone(), 16, &[3]), &rules()).error_code(), 2);
        for length in [-1i32, 0, 48] {
            let error = error_of(&patched(good.clone(), 8, &length.to_be_bytes()), &rules());
            assert_eq!(error, RecordsError::BadLength { length });
        }
        let small = ProduceRules { batch_bytes_max: good.len() - 1, ..rules() };
        assert_eq!(error_of(&good, &small).error_code(), 10);
        let mut flipped = good.clone();
        *flipped.last_mut().expect("not empty") ^= 1;
        assert_eq!(error_of(&flipped, &rules()).error_code(), 2);
    }

    #[test]
    fn the_header_of_a_client_is_checked() {
        let cases: [(usize, Vec<u8>, i16); 8] = [
            (0, 1i64.to_be_bytes().to_vec(), 87),     // base offset
            (21, 5i16.to_be_bytes().to_vec(), -1),    // compression id not assigned
            (21, 0x40i16.to_be_bytes().to_vec(), 87), // delete horizon
            (21, 0x20i16.to_be_bytes().to_vec(), 87), // control
            (21, 0x10i16.to_be_bytes().to_vec(), 87), // transactional without producer
            (21, 0x08i16.to_be_bytes().to_vec(), 32), // append time
            (23, 3i32.to_be_bytes().to_vec(), 87),    // last offset delta
            (43, 9i64.to_be_bytes().to_vec(), 87),    // producer without sequence
        ];
        for (at, bytes, code) in cases {
            let error = error_of(&patched(plain(), at, &bytes), &rules());
            assert_eq!(error.error_code(), code, "{at} {error}");
        }
        assert!(validate_produced(&patched(plain(), 21, &0x80i16.to_be_bytes()), &rules()).is_ok());
    }

    #[test]
    fn the_count_must_be_that_of_the_records() {
        for count in [-1i32, 0, 2, 4, i32::MAX] {
            let batch = patched(plain(), 57, &count.to_be_bytes());
            assert!(matches!(error_of(&batch, &rules()), RecordsError::BadCount { .. }));
            let batch = patched(batch, 23, &count.wrapping_sub(1).to_be_bytes());
            assert_eq!(error_of(&batch, &rules()).error_code(), 87);
        }
    }

    #[test]
    fn coordinators_may_write_control_batches() {
        let fields = BatchFields { control: true, producer_id: 7, producer_epoch: 1, ..BatchFields::default() };
        let marker = batch_of(Codec::None, fields, &[NOW]);
        assert_eq!(error_of(&marker, &rules()), RecordsError::ControlFromClient);
        let coordinator = ProduceRules { origin: Origin::Coordinator, ..rules() };
        assert!(validate_produced(&marker, &coordinator).is_ok());
    }

    #[test]
    fn timestamps_outside_the_limits_are_refused() {
        let limited = ProduceRules { timestamp_before_max_ms: 10, timestamp_after_max_ms: 5, ..rules() };
        for codec in [Codec::None, Codec::Zstd] {
            let taken = batch_of(codec, BatchFields::default(), &[NOW - 10, NOW + 5, NO_TIMESTAMP]);
            assert!(validate_produced(&taken, &limited).is_ok());
            let refused = batch_of(codec, BatchFields::default(), &[NOW, NOW - 11, NOW + 6, -2, i64::MAX]);
            let error = error_of(&refused, &limited);
            assert_eq!(error.error_code(), 32);
            let places: Vec<i32> = error.refused_records().iter().map(|record| record.index).collect();
            assert_eq!(places, [1, 2, 3, 4]);
        }
        let append_time = ProduceRules { timestamp_type: TimestampType::LogAppendTime, ..limited };
        let batch = batch_of(Codec::None, BatchFields::default(), &[NOW - 11, NOW + 6]);
        let produced = validate_produced(&batch, &append_time).expect("times do not matter");
        assert_eq!((produced.max_timestamp, produced.max_timestamp_delta), (NOW, 1));
        assert!(produced.needs_timestamp(TimestampType::LogAppendTime));
    }

    #[test]
    fn compacted_topics_need_keys() {
        let mut builder = BatchBuilder::new(BatchFields::default(), Compression::NONE);
        for index in 0..300 {
            let key = (index % 2 == 0).then_some(&b"k"[..]);
            builder.append(NOW, key, None, &[]).expect("small");
        }
        let batch = builder.finish().expect("small");
        assert!(validate_produced(&batch, &rules()).is_ok());
        let error = error_of(&batch, &ProduceRules { compacted: true, ..rules() });
        assert_eq!(error.error_code(), 87);
        assert_eq!(error.refused_records().len(), RefusedRecords::KEPT);
        assert!(error.to_string().starts_with("150 records refused"), "{error}");
    }

    #[test]
    fn a_wrong_max_timestamp_is_noticed() {
        let batch = patched(plain(), 35, &(NOW + 77).to_be_bytes());
        let produced = validate_produced(&batch, &rules()).expect("repairable");
        assert!(produced.needs_timestamp(TimestampType::CreateTime));
        assert_eq!(produced.max_timestamp, NOW);
    }

    #[test]
    fn offsets_that_are_not_consecutive_are_detected() {
        for codec in Codec::ALL {
            let mut builder = BatchBuilder::new(BatchFields::default(), Compression::of(codec));
            builder.append_at(0, NOW, None, None, &[]).expect("small");
            builder.append_at(2, NOW, None, None, &[]).expect("small");
            let batch = patched(builder.finish().expect("small"), 23, &1i32.to_be_bytes());
            assert!(!validate_produced(&batch, &rules()).expect("repairable").offsets_consecutive);
        }
    }

    #[test]
    fn zstd_needs_its_version() {
        let batch = batch_of(Codec::Zstd, BatchFields::default(), &[NOW]);
        let error = error_of(&batch, &ProduceRules { zstd_allowed: false, ..rules() });
        assert_eq!((error.clone(), error.error_code()), (RecordsError::ZstdTooEarly, 76));
    }

    #[test]
    fn decompressed_records_are_bounded() {
        for codec in Codec::ALL {
            let bytes = batch_of(codec, BatchFields::default(), &[NOW; 2000]);
            let size = validate_produced(&bytes, &rules()).expect("valid").uncompressed_bytes;
            let exact = ProduceRules { decompressed_bytes_max: size, ..rules() };
            assert!(validate_produced(&bytes, &exact).is_ok(), "{codec}");
            if codec != Codec::None {
                let less = ProduceRules { decompressed_bytes_max: size - 1, ..rules() };
                let error = error_of(&bytes, &less);
                assert_eq!(error, RecordsError::DecompressedTooLarge { max: size - 1 }, "{codec}");
            }
        }
    }

    #[test]
    fn records_must_fill_their_sizes() {
        // One record: length 6, attributes, two deltas, null key, null value, no headers.
        let cases: [(&[u8], RecordFault); 8] = [
            (&[12, 0, 0, 0, 1, 1], RecordFault::Cut),
            (&[14, 0, 0, 0, 1, 1, 0, 0], RecordFault::SizeMismatch),
            (&[11, 0, 0, 0, 1, 1, 0], RecordFault::NegativeSize),
            (&[12, 0, 0, 0, 3, 1, 0], RecordFault::NegativeSize),
            (&[12, 0, 0, 0, 1, 1, 1], RecordFault::NegativeSize),
            (&[12, 0, 0, 0, 1, 1, 2], RecordFault::Cut),
            (&[12, 0, 0, 0, 100, 1, 0], RecordFault::Cut),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0, 0], RecordFault::OverlongLength),
        ];
        for (payload, fault) in cases {
            for codec in Codec::ALL {
                let mut bytes = plain()[..crate::HEADER_LEN].to_vec();
                Compression::of(codec).compress(payload, &mut bytes).expect("small");
                let length = (bytes.len() - 12) as i32;
                let bytes = patched(bytes, 8, &length.to_be_bytes());
                let bytes = patched(bytes, 21, &codec.id().to_be_bytes());
                let bytes = patched(patched(bytes, 23, &0i32.to_be_bytes()), 57, &1i32.to_be_bytes());
                let error = error_of(&bytes, &rules());
                assert_eq!(error, RecordsError::BadRecord { index: 0, fault }, "{codec} {payload:?}");
            }
        }
    }
}
