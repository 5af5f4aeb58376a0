//! Properties of batches: they round-trip, damage is detected, and all ways of reading agree.

use klamm_records::convert::{recompress, renumber};
use klamm_records::{
    Batch, BatchBuilder, BatchFields, Codec, Compression, HEADER_LEN, ProduceRules, RecordHeader, RecordsError,
    TimestampType, batches, header, records, validate_produced,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const BYTES_MAX: usize = 1 << 22;

#[derive(Clone, Debug, PartialEq)]
struct Row {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => vec(any::<u8>(), 0..40), 1 => (any::<u8>(), 60..5000usize).prop_map(|(b, n)| vec![b; n])]
}

fn row() -> impl Strategy<Value = Row> {
    let headers = vec(("[a-zé]{0,6}", option::of(bytes())), 0..3);
    let timestamp = prop_oneof![Just(-1i64), 0..4_000_000_000_000i64];
    (timestamp, option::of(bytes()), option::of(bytes()), headers).prop_map(|(timestamp, key, value, headers)| Row {
        timestamp,
        key,
        value,
        headers,
    })
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    vec(row(), 1..30)
}

fn codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(Codec::ALL.to_vec())
}

fn build(rows: &[Row], base_offset: i64, codec: Codec) -> Vec<u8> {
    let fields = BatchFields { base_offset, ..BatchFields::default() };
    let mut builder = BatchBuilder::new(fields, Compression::of(codec));
    for row in rows {
        let header = |(key, value): &'_ (String, Option<Vec<u8>>)| (key.clone(), value.clone());
        let headers: Vec<_> = row.headers.iter().map(header).collect();
        let views: Vec<RecordHeader<'_>> =
            headers.iter().map(|(key, value)| RecordHeader { key: key.as_bytes(), value: value.as_deref() }).collect();
        builder.append(row.timestamp, row.key.as_deref(), row.value.as_deref(), &views).expect("small");
    }
    builder.finish().expect("small")
}

fn read(bytes: &[u8]) -> Result<Vec<(i64, Row)>, RecordsError> {
    let mut out = Vec::new();
    let mut buffer = Vec::new();
    for batch in batches(bytes) {
        let batch = batch?;
        batch.check()?;
        for record in records(batch, &mut buffer, BYTES_MAX)? {
            let record = record?;
            let text = |key: &[u8]| String::from_utf8(key.to_vec()).expect("it was text");
            let headers = record.headers.map(|h| (text(h.key), h.value.map(<[u8]>::to_vec))).collect();
            let (key, value) = (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec));
            out.push((record.offset, Row { timestamp: record.timestamp, key, value, headers }));
        }
    }
    Ok(out)
}

fn numbered(rows: &[Row], base_offset: i64) -> Vec<(i64, Row)> {
    (base_offset..).zip(rows.iter().cloned()).collect()
}

fn rules() -> ProduceRules {
    ProduceRules { timestamp_after_max_ms: i64::MAX, batch_bytes_max: usize::MAX, ..ProduceRules::of_client(0) }
}

/// The payload as a batch that claims `count` records, with a matching CRC.
fn wrapped(payload: &[u8], count: i32, codec: Codec) -> Vec<u8> {
    let mut out = build(&[Row { timestamp: 5, key: None, value: None, headers: vec![] }], 0, Codec::None);
    out.truncate(HEADER_LEN);
    Compression::of(codec).compress(payload, &mut out).expect("small");
    let length = (out.len() - 12) as i32;
    out[8..12].copy_from_slice(&length.to_be_bytes());
    out[21..23].copy_from_slice(&codec.id().to_be_bytes());
    out[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    out[57..61].copy_from_slice(&count.to_be_bytes());
    header::set_crc(&mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn batches_round_trip(rows in rows(), base in 0..1i64 << 60, codec in codec()) {
        let batch = build(&rows, base, codec);
        prop_assert_eq!(read(&batch), Ok(numbered(&rows, base)));
    }

    #[test]
    fn the_check_returns_the_properties_of_the_records(rows in rows(), codec in codec()) {
        let batch = build(&rows, 0, codec);
        let produced = validate_produced(&batch, &rules()).expect("valid");
        let max = rows.iter().map(|row| row.timestamp).max().expect("at least one");
        prop_assert_eq!(produced.max_timestamp, max);
        let first = if max < 0 { Some(0) } else { rows.iter().position(|row| row.timestamp == max) };
        prop_assert_eq!(Some(produced.max_timestamp_delta as usize), first);
        prop_assert_eq!(produced.uncompressed_bytes, build(&rows, 0, Codec::None).len() - HEADER_LEN);
        prop_assert!(!produced.needs_timestamp(TimestampType::CreateTime));
        let keyless = rows.iter().any(|row| row.key.is_none());
        let compacted = ProduceRules { compacted: true, ..rules() };
        prop_assert_eq!(validate_produced(&batch, &compacted).is_err(), keyless);
    }

    #[test]
    fn joined_batches_have_the_records_of_both(
        rows in rows(), cuts in vec(0..30usize, 0..4), codecs in vec(codec(), 5), base in 0..1000i64,
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % rows.len()).chain([0, rows.len()]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut joined = Vec::new();
        for (range, codec) in cuts.windows(2).zip(codecs) {
            joined.extend(build(&rows[range[0]..range[1]], base + range[0] as i64, codec));
        }
        prop_assert_eq!(read(&joined), Ok(numbered(&rows, base)));
    }

    #[test]
    fn a_flipped_bit_is_refused_or_lies_outside_the_crc(rows in rows(), codec in codec(), at: prop::sample::Index, bit in 0..8u8) {
        let batch = build(&rows, 77, codec);
        let at = at.index(batch.len());
        let mut damaged = batch.clone();
        damaged[at] ^= 1 << bit;
        match read(&damaged) {
            Err(_) => {}
            // The leader sets base offset and leader epoch.
            Ok(read) => {
                prop_assert!(at < 8 || (12..16).contains(&at), "byte {}", at);
                let rows_read: Vec<Row> = read.into_iter().map(|(_, row)| row).collect();
                prop_assert_eq!(rows_read, rows);
            }
        }
    }

    #[test]
    fn a_cut_batch_is_refused(rows in rows(), codec in codec(), at: prop::sample::Index) {
        let batch = build(&rows, 77, codec);
        let cut = &batch[..at.index(batch.len())];
        let mut iterator = batches(cut);
        match iterator.next() {
            None => prop_assert!(cut.is_empty()),
            Some(batch) => {
                let is_incomplete = matches!(batch, Err(RecordsError::Incomplete { .. }));
                prop_assert!(is_incomplete);
            }
        }
        prop_assert_eq!(iterator.position(), 0);
        prop_assert!(iterator.next().is_none());
    }

    #[test]
    fn conversions_keep_the_records(rows in rows(), from in codec(), to in codec()) {
        let batch = build(&rows, 9, from);
        let view = Batch::at_start_of(&batch).expect("whole");
        let again = recompress(view, Compression::of(to), BYTES_MAX).expect("valid");
        prop_assert_eq!(read(&again), Ok(numbered(&rows, 9)));
        prop_assert_eq!(&again, &build(&rows, 9, to));
        prop_assert_eq!(renumber(view, Compression::of(to), BYTES_MAX), Ok(again));
    }

    /// The streamed walk of a compressed batch, the walk of an uncompressed one and the iterator are three ways to
    /// read.
    #[test]
    fn all_ways_of_reading_agree(rows in rows(), count in 1..32i32, edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3)) {
        let mut payload = build(&rows, 0, Codec::None).split_off(HEADER_LEN);
        for (at, byte) in edits {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        let count = if count > 20 { rows.len() as i32 } else { count };
        let plain = wrapped(&payload, count, Codec::None);
        let summary = |bytes: &[u8]| {
            validate_produced(bytes, &rules())
                .map(|p| (p.max_timestamp, p.max_timestamp_delta, p.offsets_consecutive, p.uncompressed_bytes))
        };
        let expected = summary(&plain);
        for codec in Codec::ALL {
            let compressed = wrapped(&payload, count, codec);
            let seen = summary(&compressed);
            match (&seen, &expected) {
                // How many bytes follow depends on how far the window reached.
                (Err(RecordsError::BytesAfterRecords { .. }), Err(RecordsError::BytesAfterRecords { .. })) => {}
                _ => prop_assert_eq!(&seen, &expected, "{}", codec),
            }
            let batch = Batch::at_start_of(&compressed).expect("whole");
            let mut buffer = Vec::new();
            let iterated: Result<Vec<_>, _> = records(batch, &mut buffer, BYTES_MAX).expect("decompresses").collect();
            prop_assert_eq!(iterated.is_ok(), expected.is_ok());
            prop_assert!(iterated.is_err() || iterated.is_ok_and(|records| records.len() == count as usize));
        }
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in vec(any::<u8>(), 0..400), codec in codec()) {
        let _ = read(&bytes);
        let _ = validate_produced(&bytes, &rules());
        let mut out = Vec::new();
        let mut contexts = klamm_records::codec::Contexts::default();
        let limit = 10_000;
        let _ = klamm_records::codec::Decompressor::new(codec, &bytes, limit, &mut contexts).read_to_end(&mut out);
        prop_assert!(out.len() <= limit);
    }
}
