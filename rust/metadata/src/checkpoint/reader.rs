//! Reads a file: complete batches, each verified before its records are parsed.
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use klamm_base::LogError;
use klamm_records::control::ControlRecord;
use klamm_records::{Batch, HEADER_LEN, records};

use crate::MetadataImage;
use crate::checkpoint::CheckpointError;
use crate::image::Provenance;
use crate::records::Record;

/// Limit on the decompressed size of a batch's records, in bytes.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes up to and including the length field.
const PREFIX: usize = 12;

/// Loads the snapshot with this end offset (exclusive) and epoch.
pub fn load_snapshot(path: &Path, end_offset: i64, epoch: i32) -> Result<MetadataImage, CheckpointError> {
    let mut image = MetadataImage::default();
    let mut reader = CheckpointReader::open(path)?;
    while reader.read_batch(|value| image.replay_bytes(value).map_err(|error| error.to_string()))? {}
    image.finish_batch();
    if image.in_transaction() {
        return Err(reader.damaged("a metadata transaction is left open".to_owned()).into());
    }
    let last_timestamp_ms = reader.last_contained_log_timestamp;
    Ok(image.with_provenance(Provenance { last_offset: end_offset - 1, last_epoch: epoch, last_timestamp_ms }))
}

/// The metadata records of a file, in order.
pub fn read_records(path: &Path) -> Result<Vec<Vec<u8>>, CheckpointError> {
    let mut values = Vec::new();
    let mut reader = CheckpointReader::open(path)?;
    let mut keep = |value: &[u8]| {
        Record::decode(value).map_err(|error| error.to_string())?;
        values.push(value.to_vec());
        Ok(())
    };
    while reader.read_batch(&mut keep)? {}
    Ok(values)
}

/// The values of a file, in order, without parsing them.
pub fn read_values(path: &Path) -> Result<Vec<Vec<u8>>, CheckpointError> {
    let mut values = Vec::new();
    let mut reader = CheckpointReader::open(path)?;
    let mut keep = |value: &[u8]| {
        values.push(value.to_vec());
        Ok(())
    };
    while reader.read_batch(&mut keep)? {}
    Ok(values)
}

/// Reads the whole file: every batch must be complete and have a valid checksum, from the header to the footer.
pub fn check(path: &Path) -> Result<(), LogError> {
    let mut reader = CheckpointReader::open(path)?;
    while reader.read_batch(|_| Ok(()))? {}
    Ok(())
}

/// The control records at the start of a snapshot, each with type and value: its header, then those of the quorum.
pub fn header_records(path: &Path) -> Result<Vec<(i16, Vec<u8>)>, LogError> {
    let mut reader = CheckpointReader::open(path)?;
    if !reader.read_batch(|_| Ok(()))? || reader.place == Place::Start {
        return Err(reader.damaged("it does not begin with a snapshot header".to_owned()));
    }
    let batch = Batch::at_start_of(&reader.batch).map_err(|error| reader.damaged(error.to_string()))?;
    let (mut scratch, mut found) = (Vec::new(), Vec::new());
    for record in records(batch, &mut scratch, BATCH_BYTES_MAX).map_err(|error| reader.damaged(error.to_string()))? {
        let record = record.map_err(|error| reader.damaged(error.to_string()))?;
        if let Some(&[_, _, high, low]) = record.key.and_then(|key| key.first_chunk()) {
            found.push((i16::from_be_bytes([high, low]), record.value.unwrap_or_default().to_vec()));
        }
    }
    Ok(found)
}

/// The epoch of a snapshot's first batch, and the append time of the last record that it contains.
pub fn first_words(path: &Path) -> Result<(i32, i64), LogError> {
    let mut reader = CheckpointReader::open(path)?;
    if !reader.read_batch(|_| Ok(()))? || reader.place == Place::Start {
        return Err(reader.damaged("it does not begin with a snapshot header".to_owned()));
    }
    Ok((reader.epoch.unwrap_or_default(), reader.last_contained_log_timestamp))
}

/// The position of a reader in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// A header must follow.
    Start,
    Records,
    /// Nothing may follow.
    End,
}

/// A file that is being read, batch by batch.
struct CheckpointReader {
    path: PathBuf,
    file: BufReader<File>,
    position: u64,
    left: u64,
    place: Place,
    next_offset: i64,
    epoch: Option<i32>,
    last_contained_log_timestamp: i64,
    batch: Vec<u8>,
    scratch: Vec<u8>,
}

impl CheckpointReader {
    fn open(path: &Path) -> Result<Self, LogError> {
        let file = File::open(path).map_err(LogError::io("cannot open", path))?;
        let left = file.metadata().map_err(LogError::io("cannot read", path))?.len();
        Ok(Self {
            path: path.to_owned(),
            file: BufReader::with_capacity(1 << 16, file),
            position: 0,
            left,
            place: Place::Start,
            next_offset: 0,
            epoch: None,
            last_contained_log_timestamp: -1,
            batch: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// Reads a batch and calls `on_value` with each metadata record in it; `false` at the end of a complete file.
    fn read_batch(&mut self, mut on_value: impl FnMut(&[u8]) -> Result<(), String>) -> Result<bool, LogError> {
        if self.left == 0 {
            return match self.place {
                Place::End => Ok(false),
                _ => Err(self.damaged("the file does not end with a snapshot footer".to_owned())),
            };
        }
        let size = self.read_bytes()?;
        let batch = std::mem::take(&mut self.batch);
        let taken = self.take_batch(&batch, &mut on_value).map_err(|reason| self.damaged(reason));
        self.batch = batch;
        self.position += size;
        taken.map(|()| true)
    }

    /// Reads the bytes of one batch, which must match its length.
    fn read_bytes(&mut self) -> Result<u64, LogError> {
        let mut prefix = [0; PREFIX];
        let size = if self.left < HEADER_LEN as u64 {
            None
        } else {
            self.file.read_exact(&mut prefix).map_err(LogError::io("cannot read", &self.path))?;
            let length = i32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
            u64::try_from(length).ok().map(|length| length + PREFIX as u64).filter(|&size| size <= self.left)
        };
        let Some(size) = size else {
            return Err(self.damaged(format!("a batch does not fit into the {} bytes that are left", self.left)));
        };
        self.batch.resize(size as usize, 0);
        self.batch[..PREFIX].copy_from_slice(&prefix);
        self.file.read_exact(&mut self.batch[PREFIX..]).map_err(LogError::io("cannot read", &self.path))?;
        self.left -= size;
        Ok(size)
    }

    fn take_batch(
        &mut self,
        bytes: &[u8],
        on_value: &mut impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let batch = Batch::at_start_of(bytes).map_err(|error| error.to_string())?;
        batch.check().map_err(|error| error.to_string())?;
        let header = batch.header();
        // The checksum does not cover base offset and epoch, but the neighbouring batches determine them.
        let epoch = *self.epoch.get_or_insert(header.leader_epoch());
        if header.base_offset() != self.next_offset || header.leader_epoch() != epoch {
            return Err(format!(
                "a batch has offset {} and epoch {} where {} and {epoch} must be",
                header.base_offset(),
                header.leader_epoch(),
                self.next_offset
            ));
        }
        self.next_offset = header.next_offset();
        let mut scratch = std::mem::take(&mut self.scratch);
        let taken = self.take_records(batch, &mut scratch, on_value);
        self.scratch = scratch;
        taken
    }

    fn take_records(
        &mut self,
        batch: Batch<'_>,
        scratch: &mut Vec<u8>,
        on_value: &mut impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let is_control = batch.header().is_control();
        for record in records(batch, scratch, BATCH_BYTES_MAX).map_err(|error| error.to_string())? {
            let record = record.map_err(|error| error.to_string())?;
            if is_control {
                let control = ControlRecord::parse(record.key, record.value).map_err(|error| error.to_string())?;
                self.take_control(&control)?;
            } else if self.place == Place::Records {
                on_value(record.value.ok_or("a metadata record has no value")?)?;
            } else {
                return Err("a metadata record stands outside of the snapshot's header and footer".to_owned());
            }
        }
        Ok(())
    }

    fn take_control(&mut self, record: &ControlRecord) -> Result<(), String> {
        self.place = match (self.place, record) {
            (Place::Start, ControlRecord::SnapshotHeader { last_contained_log_timestamp }) => {
                self.last_contained_log_timestamp = *last_contained_log_timestamp;
                Place::Records
            }
            (Place::Records, ControlRecord::SnapshotFooter) => Place::End,
            (Place::Records, ControlRecord::SnapshotHeader { .. }) | (Place::Start | Place::End, _) => {
                return Err(format!("{record:?} stands in the wrong place"));
            }
            (Place::Records, _) => Place::Records, // Raft's own: kraft.version and voters.
        };
        Ok(())
    }

    fn damaged(&self, reason: String) -> LogError {
        LogError::Corrupt { path: self.path.clone(), position: self.position, reason }
    }
}
