//! Apache Kafka's `DumpLogSegments` reads what klamm writes. Needs Java and `KLAMM_KAFKA_LIBS`, the folder with
//! Kafka's jars; otherwise it is skipped with a message.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use klamm_log::{Log, LogConfig, LogContext, Origin};
use klamm_records::{BatchBuilder, BatchFields, Codec, Compression, control::end_transaction_marker};

fn kafka_libs() -> Option<String> {
    let libs = std::env::var("KLAMM_KAFKA_LIBS").ok();
    if libs.is_none() {
        eprintln!("skipped: KLAMM_KAFKA_LIBS does not name the folder of Apache Kafka's jars");
    }
    libs
}

fn batch(at: i64, fields: BatchFields, codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(fields, Compression::of(codec));
    for record in 0..3 {
        let value = vec![b'v'; 200 + (at as usize * 37) % 300];
        builder.append(1_700_000_000_000 + 10 * at + record, Some(b"key"), Some(&value), &[]).expect("small");
    }
    builder.finish().expect("small")
}

/// Writes all codecs, an idempotent producer, and committed, aborted and open transactions over many small segments.
fn write(path: &Path) {
    let config = LogConfig { segment_bytes: 20_000, index_interval_bytes: 1000, ..LogConfig::default() };
    let mut log = Log::create(path, "t", 0, Arc::new(config), &LogContext::new(64), 0, 0).expect("create");
    let append = |log: &mut Log, mut bytes: Vec<u8>, epoch, origin| {
        log.append_as_leader(&mut bytes, epoch, 0, origin).expect("append");
    };
    for at in 0..200i64 {
        let epoch = (at / 70) as i32;
        append(
            &mut log,
            batch(at, BatchFields::default(), Codec::ALL[at as usize % Codec::ALL.len()]),
            epoch,
            Origin::Client,
        );
        let idempotent =
            BatchFields { producer_id: 7, producer_epoch: 0, base_sequence: 3 * at as i32, ..BatchFields::default() };
        append(&mut log, batch(at, idempotent, Codec::None), epoch, Origin::Client);
        if at % 10 < 3 {
            let fields = BatchFields {
                producer_id: 100 + at,
                producer_epoch: 1,
                base_sequence: 0,
                transactional: true,
                ..BatchFields::default()
            };
            append(&mut log, batch(at, fields, Codec::Lz4), epoch, Origin::Client);
            if at % 10 < 2 {
                let marker = end_transaction_marker(100 + at, 1, 1_700_000_000_000 + 10 * at, at % 10 == 0, 5);
                append(&mut log, marker.expect("small"), epoch, Origin::Coordinator);
            }
        }
        if at % 20 == 0 {
            log.flush().expect("flush");
        }
    }
    log.close().expect("close");
}

fn dump(libs: &str, options: &[&str], files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let mut command = Command::new("java");
    command.args(["-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", &format!("{libs}/*")]);
    command.arg("org.apache.kafka.tools.DumpLogSegments").args(options).arg("--files").arg(names.join(","));
    let output = command.output().expect("java runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    text
}

fn files(path: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("list").map(|entry| entry.expect("entry").path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}

#[test]
fn every_file_is_read_without_an_error() {
    let Some(libs) = kafka_libs() else { return };
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    write(&path);
    let logs = files(&path, "log");
    assert!(logs.len() > 5);
    let text = dump(&libs, &["--deep-iteration"], &logs);
    assert!(!text.contains("isvalid: false"), "{text}");
    assert!(text.matches("isvalid: true").count() > 400);
    for (extension, least) in [("index", 6), ("timeindex", 6), ("txnindex", 1), ("snapshot", 5)] {
        let files = files(&path, extension);
        assert!(files.len() >= least, "{extension}: {}", files.len());
        let text = dump(&libs, &[], &files);
        for complaint in ["Found", "not", "rror", "xception", "orrupt"] {
            assert!(!text.contains(complaint), "{extension}: {text}");
        }
    }
    let text = dump(&libs, &["--index-sanity-check"], &files(&path, "index"));
    assert_eq!(text.matches("passed sanity check").count(), files(&path, "index").len(), "{text}");
    let text = dump(&libs, &["--index-sanity-check"], &files(&path, "timeindex"));
    assert_eq!(text.matches("passed sanity check").count(), files(&path, "timeindex").len(), "{text}");
}
