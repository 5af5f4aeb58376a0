//! Writes a file under a temporary name until it is complete and durable.
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use klamm_base::LogError;
use klamm_base::primitives::Writer;
use klamm_records::control::ControlRecord;
use klamm_records::{BatchBuilder, BatchFields, Compression};

use crate::MetadataImage;
use crate::checkpoint::{CheckpointError, CheckpointHeader};
use crate::image_records;

/// Limit on the records in a batch.
const BATCH_RECORDS_MAX: i32 = 1024;
/// Limit on the bytes in a batch, as in the metadata log.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The space that is reserved in a batch for a record in addition to its value.
const RECORD_OVERHEAD_MAX: usize = 64;
const PART_SUFFIX: &str = ".part";

/// Writes the snapshot of an image; returns its size in bytes. The file appears only when it is complete and durable.
pub fn write_snapshot(
    path: &Path,
    image: &MetadataImage,
    header: &CheckpointHeader,
    now_ms: i64,
) -> Result<u64, CheckpointError> {
    write_whole(path, header, now_ms, |file| {
        let mut scratch = Writer::with_capacity(256);
        image_records::for_each_record(image, |record, version| {
            scratch.clear();
            record.encode_to(&mut scratch, version)?;
            file.append(scratch.as_slice())
        })
    })
}

/// Writes a snapshot of values that are not Kafka's, in the same format; returns its size in bytes.
pub fn write_values<V: AsRef<[u8]>>(
    path: &Path,
    values: &[V],
    header: &CheckpointHeader,
    now_ms: i64,
) -> Result<u64, CheckpointError> {
    write_whole(path, header, now_ms, |file| values.iter().try_for_each(|value| file.append(value.as_ref())))
}

fn write_whole(
    path: &Path,
    header: &CheckpointHeader,
    now_ms: i64,
    append_all: impl FnOnce(&mut CheckpointWriter) -> Result<(), CheckpointError>,
) -> Result<u64, CheckpointError> {
    let part = part_of(path);
    let written = write_part(&part, header, now_ms, append_all).and_then(|size| {
        fs::rename(&part, path).map_err(LogError::io("cannot rename", &part))?;
        sync_folder_of(path)?;
        Ok(size)
    });
    if written.is_err() {
        let _ = fs::remove_file(&part); // The error that counts is the first one.
    }
    written
}

fn part_of(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(PART_SUFFIX);
    PathBuf::from(part)
}

fn write_part(
    part: &Path,
    header: &CheckpointHeader,
    now_ms: i64,
    append_all: impl FnOnce(&mut CheckpointWriter) -> Result<(), CheckpointError>,
) -> Result<u64, CheckpointError> {
    let mut file = CheckpointWriter::create(part, header, now_ms)?;
    append_all(&mut file)?;
    file.finish()
}

/// A file that is being written.
struct CheckpointWriter {
    path: PathBuf,
    file: BufWriter<File>,
    epoch: i32,
    now_ms: i64,
    next_offset: i64,
    batch: BatchBuilder,
    size: u64,
}

impl CheckpointWriter {
    fn create(path: &Path, header: &CheckpointHeader, now_ms: i64) -> Result<Self, CheckpointError> {
        let file = File::create(path).map_err(LogError::io("cannot create", path))?;
        let mut writer = Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(1 << 20, file),
            epoch: header.epoch,
            now_ms,
            next_offset: 0,
            batch: new_batch(0, header.epoch, false),
            size: 0,
        };
        let first = ControlRecord::SnapshotHeader { last_contained_log_timestamp: header.last_contained_log_timestamp };
        let first = (first.kind(), first.value());
        writer.append_control(std::iter::once(&first).chain(&header.control_records))?;
        Ok(writer)
    }

    fn append(&mut self, record: &[u8]) -> Result<(), CheckpointError> {
        let is_full = self.batch.record_count() == BATCH_RECORDS_MAX
            || self.batch.size() + record.len() + RECORD_OVERHEAD_MAX > BATCH_BYTES_MAX;
        if is_full {
            self.write_batch()?;
        }
        let appended = self.batch.append(self.now_ms, None, Some(record), &[]);
        appended.map_err(|error| self.corrupt(error.to_string()))?;
        Ok(())
    }

    fn append_control<'c>(&mut self, records: impl Iterator<Item = &'c (i16, Vec<u8>)>) -> Result<(), CheckpointError> {
        self.write_batch()?;
        self.batch = new_batch(self.next_offset, self.epoch, true);
        for (kind, value) in records {
            let [high, low] = kind.to_be_bytes();
            let appended = self.batch.append(self.now_ms, Some(&[0, 0, high, low]), Some(value), &[]);
            appended.map_err(|error| self.corrupt(error.to_string()))?;
        }
        self.write_batch()
    }

    fn write_batch(&mut self) -> Result<(), CheckpointError> {
        let count = i64::from(self.batch.record_count());
        let next = new_batch(self.next_offset + count, self.epoch, false);
        let batch = std::mem::replace(&mut self.batch, next);
        if count == 0 {
            return Ok(());
        }
        let bytes = batch.finish().map_err(|error| self.corrupt(error.to_string()))?;
        self.file.write_all(&bytes).map_err(LogError::io("cannot write", &self.path))?;
        self.next_offset += count;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Completes the file, and makes it durable and read-only.
    fn finish(mut self) -> Result<u64, CheckpointError> {
        let footer = (ControlRecord::SnapshotFooter.kind(), ControlRecord::SnapshotFooter.value());
        self.append_control(std::iter::once(&footer))?;
        let Self { path, file, size, .. } = self;
        let io = |action| LogError::io(action, &path);
        let file = file.into_inner().map_err(|error| io("cannot write")(error.into_error()))?;
        let mut permissions = file.metadata().map_err(io("cannot read"))?.permissions();
        permissions.set_readonly(true);
        file.set_permissions(permissions).map_err(io("cannot make read-only"))?;
        file.sync_all().map_err(io("cannot flush"))?;
        Ok(size)
    }

    fn corrupt(&self, reason: String) -> LogError {
        LogError::Corrupt { path: self.path.clone(), position: self.size, reason }
    }
}

fn new_batch(base_offset: i64, leader_epoch: i32, control: bool) -> BatchBuilder {
    BatchBuilder::new(BatchFields { base_offset, leader_epoch, control, ..BatchFields::default() }, Compression::NONE)
}

fn sync_folder_of(path: &Path) -> Result<(), LogError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(LogError::io("cannot flush", folder))
}
