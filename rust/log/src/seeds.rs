//! The seeds of the fuzz targets `log_files` and `log_open`: files that klamm writes, in the input format of the
//! targets.
//!
//! `KLAMM_BLESS=1 cargo test -p klamm-log seeds` rewrites them.

use std::fs;
use std::path::{Path, PathBuf};

use klamm_base::Uuid;
use klamm_records::control::end_transaction_marker;
use tempfile::tempdir;

use super::checkpoint::{Offsets, format_epochs, format_offsets, format_partition_metadata};
use super::testing::{BatchSpec, batch, config, create};
use super::*;

/// Creates the files of a closed log with an idempotent producer, an aborted transaction and an open one.
fn write_log(path: &Path) {
    let mut log = create(path, LogConfig { index_interval_bytes: 64, ..config() });
    for at in 0..3 {
        let spec = BatchSpec { producer: Some((7, 0, at)), timestamp: 1000 + i64::from(at), ..BatchSpec::default() };
        log.append_as_leader(&mut batch(&spec), 0, 0, Origin::Client).expect("append");
    }
    for id in [8, 9] {
        let spec = BatchSpec { producer: Some((id, 0, 0)), transactional: true, ..BatchSpec::default() };
        log.append_as_leader(&mut batch(&spec), 1, 0, Origin::Client).expect("append");
    }
    let mut marker = end_transaction_marker(8, 0, 2000, false, 0).expect("small");
    log.append_as_leader(&mut marker, 1, 0, Origin::Coordinator).expect("append");
    log.close().expect("close");
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let dir = tempdir().expect("temporary directory");
    let path = dir.path().join("t-0");
    write_log(&path);
    let file = |name: &str| fs::read(path.join(name)).unwrap_or_default();
    let (log, snapshot) = (file("00000000000000000000.log"), file("00000000000000000006.snapshot"));
    let mut files = Vec::new();
    for name in ["00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000000.txnindex"] {
        let content = file(name);
        files.extend((content.len() as u16).to_be_bytes());
        files.extend(content);
    }
    let open = |choices, recovery_point, snapshot: &[u8]| {
        [&[choices, recovery_point], &files[..], &(snapshot.len() as u16).to_be_bytes(), snapshot, &log].concat()
    };
    let text = |kind: u8, text: String| [&[kind], text.as_bytes()].concat();
    let offsets = Offsets::from([(("a".to_owned(), 0), 12), (("b-c".to_owned(), 7), 1 << 40)]);
    vec![
        ("open/clean.bin", open(1, 0, &[])),
        ("open/unclean.bin", open(0, 0, &[])),
        ("open/mended.bin", open(2, 0, &[])),
        ("open/mended-clean.bin", open(3, 0, &snapshot)),
        ("open/resumed.bin", open(0, 5, &snapshot)),
        ("files/snapshot.bin", [&[0], &snapshot[..]].concat()),
        ("files/mended.bin", [&[1], &snapshot[..]].concat()),
        ("files/offsets.bin", text(2, format_offsets(&offsets))),
        ("files/epochs.bin", text(3, format_epochs(&[(0, 0), (4, 100)]))),
        ("files/partition.bin", text(4, format_partition_metadata(Uuid([7; 16])))),
        ("files/name.bin", text(5, "00000000000000000012.timeindex.deleted".into())),
        ("files/dir.bin", text(5, "a-b-3.0123456789abcdef0123456789abcdef-delete".into())),
    ]
}

#[test]
fn the_seeds_of_the_fuzz_targets_are_what_is_written_now() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/golden");
    for (name, bytes) in seeds() {
        let path = folder.join(name);
        if std::env::var_os("KLAMM_BLESS").is_some() {
            fs::create_dir_all(path.parent().expect("a folder")).expect("create");
            fs::write(&path, &bytes).expect("write");
        }
        assert_eq!(fs::read(&path).expect("a seed: write it with KLAMM_BLESS=1"), bytes, "{name}");
    }
}
