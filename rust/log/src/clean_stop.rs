//! The clean-stop record: the end offset and segment sizes of each log at the last clean stop.
//!
//! `.kafka_cleanshutdown` alone states that nothing has to be checked, even if files were changed afterwards. This
//! file is klamm's own, and Apache Kafka ignores it. It is valid only while no other process used the folder:
//! `.kafka_cleanshutdown` contains its checksum, and every start of klamm or Apache Kafka removes or replaces that
//! file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;

use super::checkpoint::read_if_there;
use super::files::FileCache;

/// Name of the file, in a log directory or in the directory of the metadata log.
pub const CLEAN_STOP: &str = "klamm-clean-stop";

const VERSION: &str = "klamm-clean-stop 1";

/// A log at the time it was closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClosedLog {
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    /// The newest epoch in the epoch cache, -1 if it is empty.
    pub last_epoch: i32,
    /// In order of base offset.
    pub segments: Vec<ClosedSegment>,
}

/// A segment at the time its log was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosedSegment {
    pub base_offset: i64,
    pub bytes: u64,
    /// Checksum of the first batch; `None` if the segment is empty, and in records of older versions of klamm.
    pub first_crc: Option<u32>,
    /// Checksum of the index of aborted transactions, 0 if there is none; `None` in records of older versions of
    /// klamm.
    pub txn_crc: Option<u32>,
}

impl ClosedLog {
    /// The segment with this base offset.
    pub fn segment(&self, base_offset: i64) -> Option<&ClosedSegment> {
        let at = self.segments.binary_search_by_key(&base_offset, |segment| segment.base_offset).ok()?;
        Some(&self.segments[at])
    }

    /// Compares the existing segments (base offset, bytes) with the closed ones; returns the differences by base
    /// offset.
    pub fn differences(&self, found: &[(i64, u64)]) -> Vec<(i64, String)> {
        let known: BTreeMap<i64, u64> =
            self.segments.iter().map(|segment| (segment.base_offset, segment.bytes)).collect();
        let found: BTreeMap<i64, u64> = found.iter().copied().collect();
        let both: BTreeSet<i64> = known.keys().chain(found.keys()).copied().collect();
        let difference = |base_offset: &i64| match (known.get(base_offset), found.get(base_offset)) {
            (Some(bytes), Some(size)) if size == bytes => None,
            (Some(bytes), Some(size)) => Some(format!("has {size} bytes and had {bytes}")),
            (Some(bytes), None) => Some(format!("is missing and had {bytes} bytes")),
            (None, size) => Some(format!("has {} bytes and was not there", size.copied().unwrap_or(0))),
        };
        both.into_iter().filter_map(|base_offset| Some((base_offset, difference(&base_offset)?))).collect()
    }
}

/// The closed logs of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanStop {
    pub logs: BTreeMap<(String, i32), ClosedLog>,
}

impl CleanStop {
    /// Formats the record; also returns its checksum.
    pub fn format(&self) -> (String, u32) {
        let mut body = format!("{}\n", self.logs.len());
        for ((topic, partition), log) in &self.logs {
            let (start, end, epoch) = (log.log_start_offset, log.log_end_offset, log.last_epoch);
            let _ = write!(body, "{topic} {partition} {start} {end} {epoch}");
            for segment in &log.segments {
                let _ = write!(body, " {}:{}", segment.base_offset, segment.bytes);
                if let Some(crc) = segment.first_crc {
                    let _ = write!(body, ":{crc:08x}");
                }
                if let Some(crc) = segment.txn_crc {
                    let _ = write!(body, "{}:{crc:x}", if segment.first_crc.is_none() { ":" } else { "" });
                }
            }
            body.push('\n');
        }
        let checksum = crc32c::crc32c(body.as_bytes());
        (format!("{VERSION}\n{checksum:08x}\n{body}"), checksum)
    }

    /// Parses the record; also returns its checksum. The error describes what is wrong.
    pub fn parse(text: &str) -> Result<(Self, u32), String> {
        let rest = text.strip_prefix(VERSION).and_then(|rest| rest.strip_prefix('\n'));
        let rest = rest.ok_or_else(|| format!("it does not begin with '{VERSION}'"))?;
        let (stored, body) = rest.split_once('\n').ok_or("no checksum")?;
        let checksum = crc32c::crc32c(body.as_bytes());
        if u32::from_str_radix(stored, 16) != Ok(checksum) {
            return Err(format!("checksum {}, its text gives {checksum:08x}", stored.escape_debug()));
        }
        let mut lines = body.lines();
        let count: usize = lines.next().and_then(|line| line.parse().ok()).ok_or("no number of logs")?;
        let mut logs = BTreeMap::new();
        for line in lines {
            let (key, log) = parse_log(line).ok_or_else(|| format!("line '{}'", line.escape_debug()))?;
            logs.insert(key, log);
        }
        if logs.len() != count {
            return Err(format!("{count} logs announced, {} there", logs.len()));
        }
        Ok((Self { logs }, checksum))
    }

    /// Reads a folder's record and its checksum; `None` if there is none.
    pub fn read(folder: &Path) -> Result<Option<(Self, u32)>, LogError> {
        let path = folder.join(CLEAN_STOP);
        let Some(text) = read_if_there(&path)? else { return Ok(None) };
        Self::parse(&text).map(Some).map_err(|reason| LogError::Corrupt { path, position: 0, reason })
    }

    /// Replaces a folder's record and returns its checksum. The content is durable; the name becomes durable when the
    /// folder is synced.
    pub fn write(&self, cache: &Arc<FileCache>, folder: &Path) -> Result<u32, LogError> {
        let (text, checksum) = self.format();
        let temporary = folder.join(format!("{CLEAN_STOP}.tmp"));
        cache.write_whole(&temporary, text.as_bytes(), true)?;
        cache.rename(&temporary, &folder.join(CLEAN_STOP))?;
        Ok(checksum)
    }

    /// Removes a folder's record, if there is one; durable once the folder is synced.
    pub fn remove(cache: &FileCache, folder: &Path) -> Result<(), LogError> {
        cache.remove(&folder.join(CLEAN_STOP))
    }
}

fn parse_log(line: &str) -> Option<((String, i32), ClosedLog)> {
    let mut fields = line.split(' ');
    let key = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
    let mut log = ClosedLog {
        log_start_offset: fields.next()?.parse().ok()?,
        log_end_offset: fields.next()?.parse().ok()?,
        last_epoch: fields.next()?.parse().ok()?,
        segments: Vec::new(),
    };
    for field in fields {
        log.segments.push(parse_segment(field)?);
    }
    Some((key, log))
}

fn parse_segment(field: &str) -> Option<ClosedSegment> {
    let mut parts = field.split(':');
    let (base_offset, bytes) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let mut checksum =
        || parts.next().filter(|crc| !crc.is_empty()).map(|crc| u32::from_str_radix(crc, 16)).transpose();
    let (first_crc, txn_crc) = (checksum().ok()?, checksum().ok()?);
    parts.next().is_none().then_some(ClosedSegment { base_offset, bytes, first_crc, txn_crc })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tempfile::tempdir;

    use super::*;

    fn log() -> impl Strategy<Value = ClosedLog> {
        let segment =
            any::<(i64, u64, Option<u32>, Option<u32>)>().prop_map(|(base_offset, bytes, first_crc, txn_crc)| {
                ClosedSegment { base_offset, bytes, first_crc, txn_crc }
            });
        (any::<i64>(), any::<i64>(), any::<i32>(), proptest::collection::vec(segment, 0..4)).prop_map(
            |(log_start_offset, log_end_offset, last_epoch, segments)| ClosedLog {
                log_start_offset,
                log_end_offset,
                last_epoch,
                segments,
            },
        )
    }

    fn stop() -> impl Strategy<Value = CleanStop> {
        proptest::collection::btree_map(("[a-zA-Z0-9._-]{1,20}", any::<i32>()), log(), 0..5)
            .prop_map(|logs| CleanStop { logs })
    }

    #[test]
    fn a_record_is_written_read_and_removed() {
        let dir = tempdir().expect("temporary directory");
        let cache = FileCache::new(16);
        assert_eq!(CleanStop::read(dir.path()).expect("read"), None);
        let segments = vec![
            ClosedSegment { base_offset: 0, bytes: 70, first_crc: Some(0xab), txn_crc: Some(0xc) },
            ClosedSegment { base_offset: 5, bytes: 0, first_crc: None, txn_crc: Some(0) },
        ];
        let log = ClosedLog { log_start_offset: 3, log_end_offset: 9, last_epoch: 1, segments };
        let record = CleanStop { logs: [(("t".to_owned(), 0), log)].into() };
        let checksum = record.write(&cache, dir.path()).expect("write");
        assert_eq!(CleanStop::read(dir.path()).expect("read"), Some((record, checksum)));
        let text = std::fs::read_to_string(dir.path().join(CLEAN_STOP)).expect("read");
        assert_eq!(text, format!("klamm-clean-stop 1\n{checksum:08x}\n1\nt 0 3 9 1 0:70:000000ab:c 5:0::0\n"));
        CleanStop::remove(&cache, dir.path()).expect("remove");
        assert_eq!(CleanStop::read(dir.path()).expect("read"), None);
    }

    #[test]
    fn records_of_earlier_versions_are_read() {
        let body = "1\nt 0 3 9 1 0:70 5:80:000000ab\n";
        let text = format!("{VERSION}\n{:08x}\n{body}", crc32c::crc32c(body.as_bytes()));
        let (record, _) = CleanStop::parse(&text).expect("readable");
        let known: Vec<_> =
            record.logs.values().flat_map(|log| &log.segments).map(|found| (found.first_crc, found.txn_crc)).collect();
        assert_eq!(known, [(None, None), (Some(0xab), None)]);
    }

    proptest! {
        #[test]
        fn records_round_trip(record in stop()) {
            let (text, checksum) = record.format();
            prop_assert_eq!(CleanStop::parse(&text), Ok((record, checksum)));
        }

        #[test]
        fn every_changed_bit_is_found(record in stop(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let (mut bytes, checksum) = { let (text, checksum) = record.format(); (text.into_bytes(), checksum) };
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(text) = String::from_utf8(bytes) {
                // Upper-case digits are equivalent.
                prop_assert!(CleanStop::parse(&text).is_err() || CleanStop::parse(&text) == Ok((record, checksum)));
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,200}") {
            let _ = CleanStop::parse(&text);
            let _ = CleanStop::parse(&format!("klamm-clean-stop 1\n{:08x}\n{text}", crc32c::crc32c(text.as_bytes())));
        }
    }
}
