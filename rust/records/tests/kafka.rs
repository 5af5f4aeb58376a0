//! Apache Kafka's classes read our batches. Runs when `KAFKA_LIBS` names the folder of its jars.

mod describe;

use std::path::PathBuf;
use std::process::Command;

use describe::describe;
use klamm_records::{
    BatchBuilder, BatchFields, Codec, Compression, ProduceRules, RecordFault, RecordHeader, RecordsError, header,
    validate_produced,
};

const TIME: i64 = 1_700_000_000_000;

fn compressions() -> Vec<Compression> {
    let levels = [(Codec::Gzip, 1), (Codec::Gzip, 9), (Codec::Lz4, 17), (Codec::Zstd, -7), (Codec::Zstd, 19)];
    let levelled = levels.into_iter().map(|(codec, level)| Compression::at_level(codec, level).expect("a level"));
    Codec::ALL.into_iter().map(Compression::of).chain(levelled).collect()
}

fn corpus() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut noise = 0x2545_f491_4f6c_dd1d_u64;
    for compression in compressions() {
        for (count, size) in [(1, 0), (3, 10), (500, 100), (2, 300_000)] {
            let base_offset = bytes.len() as i64;
            let fields = BatchFields { base_offset, leader_epoch: 4, ..BatchFields::default() };
            let mut builder = BatchBuilder::new(fields, compression);
            for index in 0..count {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                let value: Vec<u8> =
                    (0..size).map(|at| if at % 3 == 0 { (noise >> (at % 56)) as u8 } else { b'a' }).collect();
                let headers =
                    [RecordHeader { key: b"index", value: Some(&[7, 8]) }, RecordHeader { key: b"n", value: None }];
                let key = (index % 2 == 0).then_some(&b"key"[..]);
                let headers = &headers[..index % 3];
                builder.append(1_700_000_000_000 - index as i64, key, Some(&value), headers).expect("small");
            }
            bytes.extend(builder.finish().expect("small"));
        }
    }
    bytes
}

/// The output of Kafka's classes for these bytes; None when `KAFKA_LIBS` is not set.
fn kafka_prints(command: &str, bytes: &[u8]) -> Option<String> {
    let Ok(libs) = std::env::var("KAFKA_LIBS") else {
        eprintln!("skipped: KAFKA_LIBS does not name the folder of Apache Kafka's jars");
        return None;
    };
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/records/KafkaRecords.java");
    let file = std::env::temp_dir().join(format!("klamm-records-{}-{command}.bin", std::process::id()));
    std::fs::write(&file, bytes).expect("a temporary file");
    let output = Command::new("java")
        .args(["-cp", &format!("{libs}/*")])
        .args([source.as_os_str(), command.as_ref(), file.as_os_str()])
        .output()
        .expect("java runs");
    std::fs::remove_file(&file).expect("was written");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn kafka_reads_batches_of_every_codec() {
    let bytes = corpus();
    if let Some(kafka) = kafka_prints("describe", &bytes) {
        assert_eq!(kafka, describe(&bytes).expect("valid"));
    }
}

/// Batches that a client could send, most of them invalid after a matching CRC.
fn candidates() -> Vec<Vec<u8>> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |end: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 20) as usize % end
    };
    let mut candidates = Vec::new();
    for round in 0..4000 {
        let codec = if round % 3 == 0 { Codec::ALL[next(5)] } else { Codec::None };
        let mut builder = BatchBuilder::new(BatchFields::default(), Compression::of(codec));
        for index in 0..1 + next(4) {
            let headers = [RecordHeader { key: b"name", value: Some(b"value") }];
            let late = if next(40) == 0 { 3_600_001 } else { 0 };
            let timestamp = TIME + late - index as i64;
            builder.append(timestamp, Some(b"key"), Some(&[b'v'; 20]), &headers[..next(2)]).expect("small");
        }
        let mut batch = builder.finish().expect("small");
        let odd = [0, 1, 2, 3, 0x7f, 0x80, 0xff, 0x81, next(256) as u8];
        for _ in 0..next(3) {
            let at = if next(2) == 0 { 21 + next(40) } else { 61 + next(batch.len() - 61) };
            batch[at] = odd[next(odd.len())];
        }
        if next(20) > 0 {
            header::set_crc(&mut batch);
        }
        if next(30) == 0 {
            batch[next(17)] ^= 1 << next(8);
        }
        candidates.push(batch);
    }
    candidates
}

/// Intended differences: we reject what Kafka accepts, or give a more precise error.
fn is_intended(error: &RecordsError, kafka: i16, is_compressed: bool) -> bool {
    match error {
        // Kafka ignores the delete horizon, and accepts the append time in a produce and a transaction without a
        // producer.
        RecordsError::ReservedAttributes { .. }
        | RecordsError::LogAppendTimeFromProducer
        | RecordsError::BadProducer { .. }
        | RecordsError::TransactionalWithoutProducer => true,
        // It skips through compressed records without checking their sizes; elsewhere it reads any negative size as
        // null, drops excess bits of a varint, and lets timestamps overflow.
        RecordsError::BadRecord { fault, .. } => {
            let unseen = [RecordFault::OverlongVarint, RecordFault::NegativeSize, RecordFault::TimestampOverflow];
            is_compressed || unseen.contains(fault)
        }
        // It drops bytes after a batch if they are no batch.
        RecordsError::MoreThanOneBatch { .. } => kafka == 0 || kafka == 2,
        // lz4-java accepts some blocks that violate the format.
        RecordsError::BadCompression { codec, .. } => *codec == Codec::Lz4,
        _ => false,
    }
}

#[test]
fn kafka_validates_batches_alike() {
    let candidates = candidates();
    let mut pieces = Vec::new();
    for candidate in &candidates {
        pieces.extend((candidate.len() as u32).to_be_bytes());
        pieces.extend(candidate);
    }
    let Some(kafka) = kafka_prints("judge", &pieces) else { return };
    let codes: Vec<i16> = kafka.lines().map(|line| line.parse().expect("a code")).collect();
    assert_eq!(codes.len(), candidates.len());
    let (mut taken, mut refused) = (0, 0);
    for (candidate, kafka) in candidates.iter().zip(codes) {
        let ours = validate_produced(candidate, &ProduceRules::of_client(TIME));
        let code = ours.as_ref().map_or_else(RecordsError::error_code, |_| 0);
        let is_compressed = candidate[22] & 7 != 0;
        let meant = match &ours {
            Err(error) => is_intended(error, kafka, is_compressed),
            // Renumbered here; Kafka fails to renumber compressed records.
            Ok(produced) => !produced.offsets_consecutive && kafka == -1,
        };
        assert!(code == kafka || meant, "Kafka says {kafka}, we {code}: {:?}\n{candidate:02x?}", ours.err());
        taken += usize::from(code == 0);
        refused += usize::from(code == kafka && code != 0);
    }
    assert!(taken > 500 && refused > 500, "{taken} taken, {refused} refused alike: the candidates prove little");
}
