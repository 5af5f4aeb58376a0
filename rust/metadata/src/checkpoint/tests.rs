//! Files that are written, read, truncated and corrupted.
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::bootstrap::bootstrap_checkpoint;
use crate::records::{FeatureLevelRecord, Record};
use crate::testing::{Rng, Writer};

fn header() -> CheckpointHeader {
    CheckpointHeader { epoch: 3, last_contained_log_timestamp: 77, control_records: vec![(5, vec![0, 0, 0, 1, 0])] }
}

fn written(seed: u64, steps: usize) -> (TempDir, PathBuf, Writer) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("00000000000000000300-0000000003.checkpoint");
    let writer = Writer::random(seed, steps);
    let size = write_snapshot(&path, &writer.image, &header(), 1000).expect("a snapshot");
    assert_eq!(size, fs::metadata(&path).expect("the file").len());
    (folder, path, writer)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_loaded_snapshot_equals_the_image(seed in any::<u64>(), steps in 0usize..400) {
        let (folder, path, writer) = written(seed, steps);
        let loaded = load_snapshot(&path, 300, 3).expect("a snapshot");
        prop_assert!(loaded == *writer.image.stable());
        let provenance = loaded.provenance();
        prop_assert_eq!((provenance.last_offset, provenance.last_epoch, provenance.last_timestamp_ms), (299, 3, 77));
        prop_assert!(fs::metadata(&path).expect("the file").permissions().readonly());
        prop_assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1, "no .part is left");
    }

    #[test]
    fn a_damaged_file_is_refused(seed in any::<u64>()) {
        let (folder, path, _writer) = written(seed, 60);
        let bytes = fs::read(&path).expect("the file");
        let other = folder.path().join("damaged");
        let mut rng = Rng::new(seed);
        for _ in 0..20 {
            let mut damaged = bytes.clone();
            let at = rng.below(bytes.len());
            match rng.below(3) {
                0 => damaged[at] ^= 1 << rng.below(8),
                1 => damaged.truncate(at),
                _ => damaged.splice(at..at, [0; 7]).for_each(drop),
            }
            fs::write(&other, &damaged).expect("a file");
            let error = load_snapshot(&other, 300, 3).err().expect("damage is seen");
            prop_assert!(error.to_string().contains("damaged"), "{}", error);
        }
    }
}

#[test]
fn many_records_take_many_batches() {
    let mut writer = Writer::new(1);
    writer.create_topic();
    for index in 0..3000 {
        let name = format!("feature-{index}");
        writer.write(FeatureLevelRecord { name: &name, feature_level: 1 });
    }
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("snapshot");
    write_snapshot(&path, &writer.image, &header(), 1000).expect("a snapshot");
    let bytes = fs::read(&path).expect("the file");
    let sizes: Vec<i32> =
        klamm_records::batches(&bytes).map(|batch| batch.expect("a batch").header().record_count()).collect();
    assert_eq!(sizes, [2, 1024, 1024, 955, 1], "header and kraft.version, records, footer");
}

#[test]
fn bootstrap_records_round_trip() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("bootstrap.checkpoint");
    let record = Record::from(FeatureLevelRecord { name: "metadata.version", feature_level: 30 });
    let record = record.encode(0).expect("a record");
    let write = |record: &[u8]| fs::write(&path, bootstrap_checkpoint(&[record], 1000).expect("small"));
    write(&record).expect("a file");
    assert_eq!(read_records(&path).expect("a file"), [record]);
    write(b"\x01\x63\x00\x00").expect("a file");
    let error = read_records(&path).expect_err("there is no such record");
    assert!(error.to_string().contains("no metadata record 99"), "{error}");
}

#[test]
fn without_a_metadata_version_nothing_is_written() {
    let folder = TempDir::new().expect("a folder");
    let image = crate::MetadataImage::default();
    let error = write_snapshot(&folder.path().join("s"), &image, &header(), 1000).expect_err("no version");
    assert!(error.to_string().contains("no metadata.version"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
}
