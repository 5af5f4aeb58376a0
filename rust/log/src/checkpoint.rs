//! The small text files of a log directory and of a partition, in the formats of Apache Kafka's `CheckpointFile` and
//! `PartitionMetadataFile`.
//!
//! A checkpoint consists of a version, a number of entries and one line for each entry. A file that violates this is
//! rejected as a whole: recovery then derives the values from the log, and nothing is guessed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;
use klamm_base::Uuid;

use super::files::FileCache;

pub const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
pub const LOG_START_OFFSET: &str = "log-start-offset-checkpoint";
pub const HIGH_WATERMARK: &str = "replication-offset-checkpoint";
pub const CLEANER_OFFSET: &str = "cleaner-offset-checkpoint";
/// How far each damaged log was flushed. klamm's own file, which Apache Kafka ignores.
pub const PROVEN_END: &str = "klamm-proven-end-checkpoint";
pub const LEADER_EPOCH: &str = "leader-epoch-checkpoint";
pub const PARTITION_METADATA: &str = "partition.metadata";
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";

const VERSION: &str = "0";

/// Offsets by partition, the content of a log directory's checkpoint.
pub type Offsets = BTreeMap<(String, i32), i64>;

/// Start offsets by leader epoch.
pub type Epochs = Vec<(i32, i64)>;

/// The content of a file, `None` if it does not exist.
pub(super) fn read_if_there(path: &Path) -> Result<Option<String>, LogError> {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|error| {
            let position = error.utf8_error().valid_up_to() as u64;
            LogError::Corrupt { path: path.to_owned(), position, reason: "not text".into() }
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LogError::io("cannot read", path)(error)),
    }
}

/// Parses the entries of a checkpoint; `entry` parses one line.
fn parse<T>(text: &str, entry: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let mut lines = text.lines();
    match lines.next() {
        Some(VERSION) => {}
        found => return Err(format!("version {found:?}, expected {VERSION}")),
    }
    let count: usize = lines.next().and_then(|line| line.parse().ok()).ok_or("no number of entries")?;
    let mut entries = Vec::with_capacity(count.min(text.len()));
    for line in lines {
        entries.push(entry(line).ok_or_else(|| format!("line '{}'", line.escape_debug()))?);
    }
    if entries.len() == count {
        Ok(entries)
    } else {
        Err(format!("{count} entries announced, {} there", entries.len()))
    }
}

fn corrupt(path: &Path, reason: String) -> LogError {
    LogError::Corrupt { path: path.to_owned(), position: 0, reason }
}

fn parse_offset(line: &str) -> Option<((String, i32), i64)> {
    let mut fields = line.split_ascii_whitespace();
    let entry = ((fields.next()?.to_owned(), fields.next()?.parse().ok()?), fields.next()?.parse().ok()?);
    fields.next().is_none().then_some(entry)
}

/// Parses a checkpoint of offsets.
pub fn parse_offsets(text: &str) -> Result<Offsets, String> {
    Ok(parse(text, parse_offset)?.into_iter().collect())
}

/// Formats a checkpoint of offsets.
pub fn format_offsets(offsets: &Offsets) -> String {
    use std::fmt::Write;
    let mut text = format!("{VERSION}\n{}\n", offsets.len());
    for ((topic, partition), offset) in offsets {
        let _ = writeln!(text, "{topic} {partition} {offset}");
    }
    text
}

/// Reads a checkpoint of offsets. A missing file counts as empty, and so does a file of zero bytes, which Apache
/// Kafka creates first.
pub fn read_offsets(path: &Path) -> Result<Offsets, LogError> {
    match read_if_there(path)? {
        None => Ok(Offsets::new()),
        Some(text) if text.is_empty() => Ok(Offsets::new()),
        Some(text) => parse_offsets(&text).map_err(|reason| corrupt(path, reason)),
    }
}

fn parse_epoch(line: &str) -> Option<(i32, i64)> {
    let (epoch, offset) = line.split_once(' ')?;
    Some((epoch.parse().ok()?, offset.parse().ok()?))
}

/// Parses a `leader-epoch-checkpoint`.
pub fn parse_epochs(text: &str) -> Result<Epochs, String> {
    parse(text, parse_epoch)
}

/// Formats a `leader-epoch-checkpoint`.
pub fn format_epochs(epochs: &[(i32, i64)]) -> String {
    use std::fmt::Write;
    let mut text = format!("{VERSION}\n{}\n", epochs.len());
    for (epoch, offset) in epochs {
        let _ = writeln!(text, "{epoch} {offset}");
    }
    text
}

/// Reads a partition's `leader-epoch-checkpoint`.
pub fn read_epochs(path: &Path) -> Result<Epochs, LogError> {
    match read_if_there(path)? {
        None => Ok(Epochs::new()),
        Some(text) => parse_epochs(&text).map_err(|reason| corrupt(path, reason)),
    }
}

/// Parses the topic id of a `partition.metadata`.
pub fn parse_partition_metadata(text: &str) -> Result<Uuid, String> {
    let mut lines = text.lines();
    match lines.next().and_then(|line| line.strip_prefix("version: ")).map(str::trim) {
        Some(VERSION) => {}
        found => return Err(format!("version {found:?}, expected {VERSION}")),
    }
    let id = lines.next().and_then(|line| line.strip_prefix("topic_id: ")).ok_or("no topic_id")?;
    let id: Uuid = id.trim().parse().map_err(|error: klamm_base::ParseUuidError| error.to_string())?;
    if id.is_zero() { Err("topic_id is zero".into()) } else { Ok(id) }
}

/// Formats a `partition.metadata`.
pub fn format_partition_metadata(topic_id: Uuid) -> String {
    format!("version: {VERSION}\ntopic_id: {topic_id}")
}

/// The topic id that a partition's directory belongs to, `None` if there is no `partition.metadata`, or an empty one,
/// which a power cut leaves of a file that was not synced.
pub fn read_partition_metadata(dir: &Path) -> Result<Option<Uuid>, LogError> {
    let path = dir.join(PARTITION_METADATA);
    match read_if_there(&path)? {
        None => Ok(None),
        Some(text) if text.is_empty() => Ok(None),
        Some(text) => parse_partition_metadata(&text).map(Some).map_err(|reason| corrupt(&path, reason)),
    }
}

/// Writes the topic id into a partition's directory.
pub fn write_partition_metadata(
    cache: &Arc<FileCache>,
    dir: &Path,
    topic_id: Uuid,
    durable: bool,
) -> Result<(), LogError> {
    assert!(!topic_id.is_zero(), "a topic id is never zero");
    cache.replace(&dir.join(PARTITION_METADATA), format_partition_metadata(topic_id).as_bytes(), durable)
}

/// The content of `.kafka_cleanshutdown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanShutdown {
    /// The broker epoch at the shutdown, -1 if the file does not contain it.
    pub broker_epoch: i64,
    /// The checksum of the clean-stop record that belongs to the shutdown; Apache Kafka writes none and ignores it.
    pub clean_stop: Option<u32>,
}

/// Reads `.kafka_cleanshutdown`; `None` if the last shutdown was not clean.
pub fn read_clean_shutdown(dir: &Path) -> Result<Option<CleanShutdown>, LogError> {
    let path = dir.join(CLEAN_SHUTDOWN);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result.map_err(LogError::io("cannot read", &path))?,
    };
    let json = serde_json::from_slice::<serde_json::Value>(&bytes).ok();
    let json = json.filter(|json| json.get("version").and_then(serde_json::Value::as_i64) == Some(0));
    let clean_stop = |json: &serde_json::Value| u32::from_str_radix(json.get("klammCleanStop")?.as_str()?, 16).ok();
    Ok(Some(CleanShutdown {
        broker_epoch: json.as_ref().and_then(|json| json.get("brokerEpoch")?.as_i64()).unwrap_or(-1),
        clean_stop: json.as_ref().and_then(clean_stop),
    }))
}

/// Marks the shutdown as clean; `clean_stop` is the checksum of the clean-stop record.
pub fn write_clean_shutdown(
    cache: &Arc<FileCache>,
    dir: &Path,
    broker_epoch: i64,
    clean_stop: u32,
) -> Result<(), LogError> {
    let text = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch},\"klammCleanStop\":\"{clean_stop:08x}\"}}");
    cache.replace(&dir.join(CLEAN_SHUTDOWN), text.as_bytes(), true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn offsets_are_written_as_kafka_writes_them() {
        let offsets = Offsets::from([(("a".into(), 0), 12), (("topic-b".into(), 10), 0)]);
        let text = "0\n2\na 0 12\ntopic-b 10 0\n";
        assert_eq!(format_offsets(&offsets), text);
        assert_eq!(parse_offsets(text), Ok(offsets));
        assert_eq!(parse_offsets("0\n0\n"), Ok(Offsets::new()));
    }

    #[test]
    fn invalid_checkpoints_are_rejected() {
        for text in ["", "1\n0\n", "0\n", "0\n1\n", "0\n1\na 0\n", "0\n0\na 0 1\n", "0\n1\na x 1\n", "0\n1\na 0 1 2\n"]
        {
            assert!(parse_offsets(text).is_err(), "{text:?}");
        }
        assert!(parse_epochs("0\n99999999999999999\n").is_err());
    }

    #[test]
    fn epochs_are_written_as_kafka_writes_them() {
        let text = "0\n2\n0 0\n5 1234\n";
        assert_eq!(format_epochs(&[(0, 0), (5, 1234)]), text);
        assert_eq!(parse_epochs(text), Ok(vec![(0, 0), (5, 1234)]));
    }

    #[test]
    fn partition_metadata_has_no_last_newline() {
        let id: Uuid = "ASNFZ4mrze_-3LqYdlQyEA".parse().expect("an id");
        let text = "version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA";
        assert_eq!(format_partition_metadata(id), text);
        assert_eq!(parse_partition_metadata(text), Ok(id));
        assert!(parse_partition_metadata("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA").is_err());
        assert!(parse_partition_metadata("version: 1\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA").is_err());
    }

    #[test]
    fn clean_shutdown_contains_the_broker_epoch() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let cache = FileCache::new(16);
        assert_eq!(read_clean_shutdown(dir.path()).expect("read"), None);
        write_clean_shutdown(&cache, dir.path(), 42, 0xabc).expect("write");
        let text = fs::read_to_string(dir.path().join(CLEAN_SHUTDOWN)).expect("read");
        assert_eq!(text, "{\"version\":0,\"brokerEpoch\":42,\"klammCleanStop\":\"00000abc\"}");
        for (text, broker_epoch, clean_stop) in [
            (&text.into_bytes()[..], 42, Some(0xabc)),
            (b"{\"version\":0,\"brokerEpoch\":7}", 7, None),
            (b"", -1, None),
            (b"\xff", -1, None),
        ] {
            fs::write(dir.path().join(CLEAN_SHUTDOWN), text).expect("write");
            let found = read_clean_shutdown(dir.path()).expect("read");
            assert_eq!(found, Some(CleanShutdown { broker_epoch, clean_stop }));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,200}") {
            let _ = parse_offsets(&text);
            let _ = parse_epochs(&text);
            let _ = parse_partition_metadata(&text);
        }

        #[test]
        fn offsets_round_trip(offsets in proptest::collection::btree_map(("[a-zA-Z0-9._-]{1,20}", 0..10_000i32), 0..i64::MAX, 0..20)) {
            prop_assert_eq!(parse_offsets(&format_offsets(&offsets)), Ok(offsets));
        }
    }
}
