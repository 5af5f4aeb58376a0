//! Batches that Apache Kafka's classes wrote are read like Kafka does, and written byte for byte.

mod describe;

use std::path::PathBuf;

use describe::describe;
use klamm_records::control::{ControlRecord, control_batch, end_transaction_marker};
use klamm_records::{
    Batch, BatchBuilder, BatchFields, Codec, Compression, ProduceRules, RecordHeader, batches, header, records,
    validate_produced,
};

const TIME: i64 = 1_700_000_000_000;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/records")
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Every case: its name, bytes and description.
fn cases() -> Vec<(String, Vec<u8>, String)> {
    let files = std::fs::read_dir(folder()).expect("the folder is part of the repository");
    let paths = files.map(|file| file.expect("readable").path());
    let batches = paths.filter(|path| path.extension().is_some_and(|extension| extension == "bin"));
    let names = batches.map(|path| path.file_stem().expect("a file").to_string_lossy().into_owned());
    names
        .map(|name| {
            let text = String::from_utf8(read(&format!("{name}.txt"))).expect("text");
            let bytes = read(&format!("{name}.bin"));
            (name, bytes, text)
        })
        .collect()
}

/// The batch built again from its records, with its codec.
fn rebuilt(batch: Batch<'_>) -> Vec<u8> {
    let header = batch.header();
    let compression = Compression::of(batch.codec().expect("known"));
    let mut builder = BatchBuilder::new(BatchFields::of(&header), compression);
    if header.is_log_append_time() {
        builder = builder.log_append_time(header.max_timestamp());
    }
    if header.has_delete_horizon() {
        builder = builder.delete_horizon(header.base_timestamp());
    }
    let mut buffer = Vec::new();
    for record in records(batch, &mut buffer, 1 << 24).expect("readable") {
        let record = record.expect("valid");
        let headers: Vec<RecordHeader<'_>> = record.headers.collect();
        builder.append_at(record.offset, record.timestamp, record.key, record.value, &headers).expect("small");
    }
    builder.reach(header.last_offset()).expect("in range");
    builder.finish().expect("small")
}

#[test]
fn batches_of_kafka_are_read() {
    let cases = cases();
    assert!(cases.len() > 30, "only {} cases", cases.len());
    for (name, bytes, text) in cases {
        assert_eq!(describe(&bytes), Ok(text), "{name}");
    }
}

#[test]
fn batches_of_kafka_are_written_again() {
    for (name, bytes, text) in cases() {
        let mut again = Vec::new();
        let mut plain = true;
        for batch in batches(&bytes) {
            let batch = batch.expect("valid");
            plain &= batch.codec() == Ok(Codec::None) && !batch.header().is_log_append_time();
            plain &= batch.header().record_count() > 0;
            match batch.header().record_count() {
                0 => again.extend(klamm_records::convert::without_records(&batch.header()).expect("small")),
                _ => again.extend(rebuilt(batch)),
            }
        }
        let described = describe(&again).expect("valid");
        // The records of a batch with the append time have lost their own times, so the base timestamp differs.
        if name != "log-append-time" {
            assert_eq!(described, text, "{name}");
        }
        if plain {
            assert_eq!(again, bytes, "{name}");
        }
    }
}

#[test]
fn batches_of_a_kafka_producer_are_accepted() {
    for codec in Codec::ALL {
        for case in ["mixed", "many", "noise", "large"] {
            let name = format!("{codec}-{case}.bin");
            if !folder().join(&name).exists() {
                continue;
            }
            let mut bytes = read(&name);
            header::set_position(&mut bytes, 0, -1);
            let produced = validate_produced(&bytes, &ProduceRules::of_client(TIME)).expect(&name);
            assert!(produced.offsets_consecutive);
            assert_eq!(produced.max_timestamp, produced.batch.header().max_timestamp(), "{name}");
        }
    }
}

#[test]
fn every_bit_of_a_batch_after_the_crc_is_checked() {
    let bytes = read("lz4-mixed.bin");
    for at in 17..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(describe(&damaged).is_err(), "byte {at} bit {bit}");
        }
    }
    for cut in 1..bytes.len() {
        assert!(describe(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn control_batches_are_those_of_kafka() {
    let fields = BatchFields { base_offset: 100, leader_epoch: 7, ..BatchFields::default() };
    for name in ["leader-change", "snapshot-header", "snapshot-footer", "kraft-version", "kraft-voters"] {
        let bytes = read(&format!("{name}.bin"));
        let batch = Batch::at_start_of(&bytes).expect("whole");
        let mut buffer = Vec::new();
        let record = records(batch, &mut buffer, 0).expect("plain").next().expect("one").expect("valid");
        let control = ControlRecord::parse(record.key, record.value).expect(name);
        assert!(!matches!(control, ControlRecord::Unknown { .. }), "{name}");
        let fields = BatchFields { base_offset: record.offset, ..fields };
        assert_eq!(control_batch(fields, TIME, &[control]).expect("small"), bytes, "{name}");
    }
    for (name, commit) in [("commit", true), ("abort", false)] {
        let mut marker = end_transaction_marker(4000, 3, TIME, commit, 12).expect("small");
        header::set_position(&mut marker, 100, 7);
        assert_eq!(marker, read(&format!("{name}.bin")), "{name}");
    }
}

type Row = (Option<Vec<u8>>, Option<Vec<u8>>);

/// The rows of `clients/produce.py`.
fn client_rows() -> Vec<Row> {
    let bytes = |text: &str| Some(text.as_bytes().to_vec());
    let odd = [(bytes("key"), bytes("value")), (None, bytes("no key")), (bytes("tombstone"), None)];
    let even = (0..60).map(|i| {
        let value = format!("{{\"id\":{i},\"state\":\"shipped\"}},").repeat(30);
        (bytes(&format!("key-{i}")), bytes(&value))
    });
    odd.into_iter().chain(even).collect()
}

#[test]
fn batches_of_other_clients_are_read_and_accepted() {
    for client in ["librdkafka", "kafka-python", "aiokafka"] {
        for codec in ["gzip", "snappy", "lz4", "zstd"] {
            let name = format!("clients/{client}-{codec}.bin");
            let bytes = read(&name);
            let mut rows: Vec<Row> = Vec::new();
            let mut buffer = Vec::new();
            for batch in batches(&bytes) {
                let batch = batch.expect(&name);
                for record in records(batch, &mut buffer, 1 << 20).expect(&name) {
                    let record = record.expect(&name);
                    assert_eq!((record.offset, record.timestamp), (rows.len() as i64, TIME + rows.len() as i64));
                    rows.push((record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec)));
                }
                let mut sent = batch.bytes().to_vec();
                header::set_position(&mut sent, 0, -1);
                let produced = validate_produced(&sent, &ProduceRules::of_client(TIME)).expect(&name);
                assert_eq!(produced.record_count, batch.header().record_count());
            }
            assert!(rows == client_rows(), "{name}");
        }
    }
}
