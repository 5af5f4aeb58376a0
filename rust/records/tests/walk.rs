//! The check of a produced batch agrees with a simple walk over its records, for any sequence of record shapes.

use klamm_records::varint::{Reader, VarintFault, put_varint, put_varlong};
use klamm_records::{
    Codec, Compression, HEADER_LEN, ProduceRules, RecordFault, RecordsError, header, validate_produced,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

const LATEST: i64 = 1_000;
/// The position of the base timestamp in a batch header.
const BASE_TIMESTAMP: i64 = 5;

#[derive(Clone, Debug)]
struct Row {
    attributes: u8,
    timestamp_delta: i64,
    offset_delta: Option<i32>,
    key_len: Option<usize>,
    value_len: Option<usize>,
    headers: usize,
}

/// The result of a walk, or why it ends.
#[derive(Debug, PartialEq)]
struct Seen {
    max_timestamp: i64,
    max_timestamp_delta: i32,
    offsets_consecutive: bool,
    refused: Vec<i32>,
}

fn row() -> impl Strategy<Value = Row> {
    let timestamp = prop_oneof![8 => 0..3i64, 2 => -70..20_000i64, 1 => any::<i64>()];
    let offset = prop_oneof![20 => Just(None), 1 => any::<i32>().prop_map(Some), 1 => (0..200i32).prop_map(Some)];
    let len = || prop_oneof![8 => 0..4usize, 2 => 60..70usize, 1 => 8_190..8_194usize];
    let headers = prop_oneof![12 => Just(0usize), 1 => 1..3usize];
    (any::<u8>(), timestamp, offset, option::weighted(0.6, len()), option::weighted(0.8, len()), headers).prop_map(
        |(attributes, timestamp_delta, offset_delta, key_len, value_len, headers)| Row {
            attributes,
            timestamp_delta,
            offset_delta,
            key_len,
            value_len,
            headers,
        },
    )
}

/// Rows of few shapes, so that many consecutive ones are equal; sometimes enough that the offset deltas get longer.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    let stretch = (row(), 1..90usize, vec(0..3i64, 90), any::<bool>());
    vec(stretch, 1..5).prop_map(|stretches| {
        let mut rows = Vec::new();
        for (row, times, timestamps, keeps_time) in stretches {
            for delta in timestamps.into_iter().take(times) {
                let timestamp_delta = if keeps_time { row.timestamp_delta } else { delta };
                rows.push(Row { timestamp_delta, ..row.clone() });
            }
        }
        rows
    })
}

/// A varint with one byte more than necessary: no client writes it, and Apache Kafka reads it.
fn put_padded(out: &mut Vec<u8>, value: i32, is_padded: bool) {
    put_varint(out, value);
    if is_padded && let Some(last) = out.last_mut() {
        *last |= 0x80;
        out.push(0);
    }
}

fn encoded(rows: &[Row], is_padded: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let mut body = vec![row.attributes];
        put_varlong(&mut body, row.timestamp_delta);
        put_varint(&mut body, row.offset_delta.unwrap_or(index as i32));
        for len in [row.key_len, row.value_len] {
            put_padded(&mut body, len.map_or(-1, |len| len as i32), is_padded);
            body.extend((0..len.unwrap_or(0)).map(|at| (at + index) as u8));
        }
        put_padded(&mut body, row.headers as i32, is_padded && index % 3 == 0);
        body.extend([2, b'h', 1].repeat(row.headers));
        put_padded(&mut out, body.len() as i32, is_padded);
        out.extend(body);
    }
    out
}

/// The payload as a batch that claims `count` records, with a matching CRC.
fn wrapped(payload: &[u8], count: i32, codec: Codec) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN];
    Compression::of(codec).compress(payload, &mut out).expect("small");
    let length = (out.len() - 12) as i32;
    out[8..12].copy_from_slice(&length.to_be_bytes());
    out[16] = 2;
    out[21..23].copy_from_slice(&codec.id().to_be_bytes());
    out[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    out[27..35].copy_from_slice(&BASE_TIMESTAMP.to_be_bytes());
    out[43..57].copy_from_slice(&[0xff; 14]);
    out[57..61].copy_from_slice(&count.to_be_bytes());
    header::set_crc(&mut out);
    out
}

fn fault(fault: VarintFault) -> RecordFault {
    match fault {
        VarintFault::Cut => RecordFault::Cut,
        VarintFault::TooLong => RecordFault::OverlongVarint,
    }
}

fn size(reader: &mut Reader<'_>, is_nullable: bool) -> Result<usize, RecordFault> {
    match reader.varint().map_err(fault)? {
        -1 if is_nullable => Ok(0),
        size => usize::try_from(size).map_err(|_| RecordFault::NegativeSize),
    }
}

fn skip(reader: &mut Reader<'_>, is_nullable: bool) -> Result<(), RecordFault> {
    let size = size(reader, is_nullable)?;
    reader.take(size).map(drop).ok_or(RecordFault::Cut)
}

/// Timestamp delta, offset delta, and whether there is a key.
fn read_record(reader: &mut Reader<'_>) -> Result<(i64, i32, bool), RecordFault> {
    let length = reader.varint().map_err(|error| match fault(error) {
        RecordFault::OverlongVarint => RecordFault::OverlongLength,
        other => other,
    })?;
    let length = usize::try_from(length).map_err(|_| RecordFault::NegativeSize)?;
    let mut body = Reader::new(reader.take(length).ok_or(RecordFault::Cut)?);
    body.byte().ok_or(RecordFault::Cut)?;
    let timestamp_delta = body.varlong().map_err(fault)?;
    let offset_delta = body.varint().map_err(fault)?;
    let has_key = body.clone().varint() != Ok(-1);
    skip(&mut body, true)?;
    skip(&mut body, true)?;
    let headers = body.varint().map_err(fault)?;
    for _ in 0..u32::try_from(headers).map_err(|_| RecordFault::NegativeSize)? {
        skip(&mut body, false)?;
        skip(&mut body, true)?;
    }
    if body.remaining() > 0 {
        return Err(RecordFault::SizeMismatch);
    }
    Ok((timestamp_delta, offset_delta, has_key))
}

/// The obviously correct walk.
fn obvious(payload: &[u8], count: i32, compacted: bool) -> Result<Seen, RecordsError> {
    let mut reader = Reader::new(payload);
    let mut seen = Seen { max_timestamp: -1, max_timestamp_delta: 0, offsets_consecutive: true, refused: Vec::new() };
    for index in 0..count {
        let bad = |fault| RecordsError::BadRecord { index, fault };
        let (timestamp_delta, offset_delta, has_key) = read_record(&mut reader).map_err(bad)?;
        let timestamp = BASE_TIMESTAMP.checked_add(timestamp_delta).ok_or(bad(RecordFault::TimestampOverflow))?;
        seen.offsets_consecutive &= offset_delta == index;
        if timestamp > seen.max_timestamp {
            (seen.max_timestamp, seen.max_timestamp_delta) = (timestamp, index);
        }
        if compacted && !has_key || timestamp != -1 && timestamp > LATEST {
            seen.refused.push(index);
        }
    }
    match reader.remaining() {
        0 => Ok(seen),
        bytes => Err(RecordsError::BytesAfterRecords { bytes, count }),
    }
}

fn checked(batch: &[u8], compacted: bool) -> Result<Seen, RecordsError> {
    let rules = ProduceRules {
        compacted,
        timestamp_after_max_ms: LATEST,
        batch_bytes_max: usize::MAX,
        ..ProduceRules::of_client(0)
    };
    match validate_produced(batch, &rules) {
        Ok(produced) => Ok(Seen {
            max_timestamp: produced.max_timestamp,
            max_timestamp_delta: produced.max_timestamp_delta,
            offsets_consecutive: produced.offsets_consecutive,
            refused: Vec::new(),
        }),
        Err(error) => Err(error),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_check_agrees_with_the_obvious_walk(
        rows in rows(), is_padded: bool, compacted: bool, miscount in 0..12i32,
        edits in prop_oneof![vec((any::<Index>(), any::<u8>()), 0..1), vec((any::<Index>(), any::<u8>()), 1..3)],
        cut in option::weighted(0.1, any::<Index>()),
    ) {
        let mut payload = encoded(&rows, is_padded);
        for (at, byte) in edits {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        payload.truncate(cut.map_or(payload.len(), |cut| cut.index(payload.len())));
        let count = match miscount { 0 => rows.len() as i32 + 1, 1 => rows.len().max(2) as i32 - 1, _ => rows.len() as i32 };
        let expected = obvious(&payload, count, compacted);
        for codec in [Codec::None, Codec::Lz4] {
            match (checked(&wrapped(&payload, count, codec), compacted), &expected) {
                (Err(RecordsError::Refused(refused)), Ok(seen)) => {
                    prop_assert_eq!(refused.count, seen.refused.len());
                    let named: Vec<i32> = refused.records.iter().map(|record| record.index).collect();
                    prop_assert_eq!(&named[..], &seen.refused[..named.len()]);
                }
                // How many bytes follow depends on how far the window reached.
                (Err(RecordsError::BytesAfterRecords { .. }), Err(RecordsError::BytesAfterRecords { .. }))
                    if codec != Codec::None => {}
                (found, expected) => prop_assert_eq!(&found, expected, "{}", codec),
            }
        }
    }
}

#[test]
fn each_damaged_byte_of_equal_records_gives_the_result_of_the_obvious_walk() {
    let row =
        Row { attributes: 0, timestamp_delta: 1, offset_delta: None, key_len: Some(2), value_len: Some(3), headers: 0 };
    let payload = encoded(&vec![row; 70], false);
    let mut damaged = payload.clone();
    for at in 0..payload.len() {
        for byte in [0, 1, 2, 4, 0x13, 0x15, 0x7f, 0x80, 0x81, 0xff] {
            damaged[at] = byte;
            let found = checked(&wrapped(&damaged, 70, Codec::None), false);
            assert_eq!(found, obvious(&damaged, 70, false), "byte {at} is {byte}");
        }
        damaged[at] = payload[at];
    }
}
