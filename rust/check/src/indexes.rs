//! Compares the indexes of a segment with its batches while the batches are read.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use klamm_base::LogError;
use klamm_log::damage::Damage;
use klamm_log::index::AbortedTxn;
use klamm_log::names::{FileName, Kind as FileKind};
use klamm_records::header::Header;

use super::{Finding, Kind as FindingKind, unreadable};

const OFFSET_ENTRY: usize = 8;
const TIME_ENTRY: usize = 12;
pub const MADE_AGAIN: &str = "it is rebuilt from the log";

/// One index entry: what it claims about a batch.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Position in the index file.
    at: u64,
    offset: i64,
    /// Position, timestamp or producer id.
    value: i64,
}

/// The entries of an index, in the order of the batches.
pub struct Index {
    path: PathBuf,
    kind: Kind,
    entries: Vec<Entry>,
    next: usize,
    /// For the offset index: the entry whose batch has started.
    begun: Option<Entry>,
    wrong: Option<(Entry, String)>,
    malformed: Option<Finding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Offset,
    Time,
    /// The index of aborted transactions.
    Txn,
}

/// Opens the indexes of a segment, and checks each by itself. `if_absent`: the severity of a missing file; `None` if
/// a start creates it in any case. `txn_crc`: the checksum of the index of aborted transactions in the clean-stop
/// record.
pub fn open_indexes(
    folder: &Path,
    base_offset: i64,
    if_absent: Option<FindingKind>,
    txn_crc: Option<u32>,
) -> (Vec<Index>, Vec<Finding>) {
    let (mut indexes, mut findings) = (Vec::new(), Vec::new());
    let kinds =
        [(FileKind::OffsetIndex, Kind::Offset), (FileKind::TimeIndex, Kind::Time), (FileKind::TxnIndex, Kind::Txn)];
    for (of_file, kind) in kinds {
        let path = folder.join(FileName::live(base_offset, of_file).to_string());
        let expected_crc = txn_crc.filter(|_| kind == Kind::Txn);
        match (Index::read(&path, kind, base_offset, expected_crc), if_absent) {
            (Ok(Some(index)), _) => indexes.push(index),
            (Ok(None), Some(of_absent)) if kind != Kind::Txn => {
                findings.push(Finding::new(of_absent, &path, "the segment has no index", MADE_AGAIN));
            }
            (Ok(None), _) if expected_crc.is_some_and(|crc| crc != 0) => {
                findings.push(Finding::missing(&path, "it was there when the node stopped cleanly", MADE_AGAIN));
            }
            (Ok(None), _) => {}
            (Err(error), _) => findings.push(unreadable(&path, &LogError::io("cannot read", &path)(error))),
        }
    }
    (indexes, findings)
}

impl Index {
    /// Reads an index; `None` if there is no file.
    pub fn read(path: &Path, kind: Kind, base_offset: i64, expected_crc: Option<u32>) -> io::Result<Option<Self>> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (entries, reason) = match kind {
            Kind::Txn => parse_txns(&bytes, base_offset),
            Kind::Offset | Kind::Time => parse(&bytes, kind, base_offset),
        };
        let found_crc = crc32c::crc32c(&bytes);
        let malformed = match (reason, expected_crc) {
            (Some((at, reason)), _) => Some(Finding::damaged(path, reason, MADE_AGAIN).at(at)),
            (None, Some(expected)) if expected != found_crc => {
                let reason = format!("checksum {found_crc:08x}, and {expected:08x} when the node stopped cleanly");
                Some(Finding::damaged(path, reason, MADE_AGAIN))
            }
            _ => None,
        };
        Ok(Some(Self { path: path.to_owned(), kind, entries, next: 0, begun: None, wrong: None, malformed }))
    }

    /// Compares an intact batch of the segment.
    pub fn on_batch(&mut self, position: u64, header: &Header<'_>) {
        match self.kind {
            Kind::Offset => self.on_position(position, header),
            Kind::Time => self.on_offsets(header, "timestamp", header.max_timestamp(), true),
            Kind::Txn => self.on_offsets(header, "producer", header.producer_id(), header.is_control()),
        }
    }

    /// The findings after all batches. `next_offset`: that of the segment. Entries for damaged batches are not
    /// checked.
    pub fn finish(mut self, next_offset: i64, damage: &[Damage]) -> Vec<Finding> {
        if let Some(malformed) = self.malformed {
            return vec![malformed];
        }
        let within = |entry: &Entry| {
            damage.iter().any(|damage| {
                let is_end_known = damage.next_offset > damage.first_offset;
                entry.offset >= damage.first_offset && (!is_end_known || entry.offset < damage.next_offset)
            })
        };
        if self.wrong.is_none()
            && let Some(&entry) = self.begun.iter().chain(&self.entries[self.next..]).find(|entry| !within(entry))
        {
            self.wrong =
                Some((entry, format!("an entry of offset {} and the segment ends before {next_offset}", entry.offset)));
        }
        let Some((entry, reason)) = self.wrong.filter(|(entry, _)| !within(entry)) else { return Vec::new() };
        vec![Finding::damaged(&self.path, reason, MADE_AGAIN).at(entry.at)]
    }

    /// Offset index: a batch begins at the position, and this batch or a later one ends with the offset.
    fn on_position(&mut self, position: u64, header: &Header<'_>) {
        while let Some(&entry) = self.entries.get(self.next).filter(|entry| entry.value <= position as i64) {
            self.next += 1;
            if entry.value < position as i64 {
                self.note(entry, format!("an entry of byte {}, where no batch begins", entry.value));
            } else if entry.offset < header.base_offset() {
                let base = header.base_offset();
                self.note(entry, format!("an entry of offset {} for the batch of offset {base}", entry.offset));
            } else {
                self.begun = Some(entry);
            }
        }
        if let Some(entry) = self.begun
            && header.last_offset() >= entry.offset
        {
            self.begun = None;
            if header.last_offset() > entry.offset {
                self.note(entry, format!("an entry of offset {}, with which no batch ends", entry.offset));
            }
        }
    }

    /// Time and transaction index: the batch with the offset has the same value.
    fn on_offsets(&mut self, header: &Header<'_>, what: &str, value: i64, is_kind: bool) {
        while let Some(&entry) = self.entries.get(self.next).filter(|entry| entry.offset <= header.last_offset()) {
            self.next += 1;
            if entry.offset < header.base_offset() || !is_kind {
                self.note(entry, format!("an entry of offset {}, which no such batch has", entry.offset));
            } else if entry.value != value {
                let reason = format!("{what} {} for offset {}, whose batch has {value}", entry.value, entry.offset);
                self.note(entry, reason);
            }
        }
    }

    fn note(&mut self, entry: Entry, reason: String) {
        self.wrong.get_or_insert((entry, reason));
    }
}

/// Parses by the rules of a start.
fn parse_txns(bytes: &[u8], base_offset: i64) -> (Vec<Entry>, Option<(u64, String)>) {
    match AbortedTxn::parse_all(bytes, base_offset) {
        Ok(found) => {
            let entry = |(number, txn): (usize, &AbortedTxn)| Entry {
                at: (number * AbortedTxn::SIZE) as u64,
                offset: txn.last_offset,
                value: txn.producer_id,
            };
            (found.iter().enumerate().map(entry).collect(), None)
        }
        Err(reason) => (Vec::new(), Some(reason)),
    }
}

/// The entries of an offset or time index, and an error that one of them shows by itself.
fn parse(bytes: &[u8], kind: Kind, base_offset: i64) -> (Vec<Entry>, Option<(u64, String)>) {
    let size = match kind {
        Kind::Offset => OFFSET_ENTRY,
        _ => TIME_ENTRY,
    };
    // Zeroes were preallocated.
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| (last / size + 1) * size);
    if used > bytes.len() || !bytes.len().is_multiple_of(size) && used > 0 {
        let whole = (bytes.len() / size * size) as u64;
        return (Vec::new(), Some((whole, format!("{} bytes are no whole number of entries", bytes.len()))));
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(used / size);
    for (number, bytes) in bytes[..used].chunks_exact(size).enumerate() {
        let at = (number * size) as u64;
        let entry = match kind {
            Kind::Offset => Entry { at, offset: base_offset + unsigned(bytes, 0), value: unsigned(bytes, 4) },
            _ => Entry { at, offset: base_offset + unsigned(bytes, 8), value: signed(bytes, 0) },
        };
        if let Some(&before) = entries.last()
            && (entry.offset < before.offset || entry.value < before.value)
        {
            return (entries, Some((at, format!("an entry of offset {} after {}", entry.offset, before.offset))));
        }
        entries.push(entry);
    }
    (entries, None)
}

fn unsigned(bytes: &[u8], at: usize) -> i64 {
    i64::from(u32::from_be_bytes(*bytes[at..].first_chunk().expect("an entry's size")))
}

fn signed(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(*bytes[at..].first_chunk().expect("an entry's size"))
}
