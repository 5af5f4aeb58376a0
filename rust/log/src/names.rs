//! Names of segment files and partition directories, as in Apache Kafka's `LogFileUtils` and `LocalLog`.

use std::fmt;

/// The kind of a segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Log,
    OffsetIndex,
    TimeIndex,
    TxnIndex,
    Snapshot,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Log, Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex, Kind::Snapshot];

    const fn extension(self) -> &'static str {
        match self {
            Kind::Log => ".log",
            Kind::OffsetIndex => ".index",
            Kind::TimeIndex => ".timeindex",
            Kind::TxnIndex => ".txnindex",
            Kind::Snapshot => ".snapshot",
        }
    }
}

/// The stage in the life of a segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    Live,
    /// About to be removed.
    Deleted,
    /// Being written by the cleaner.
    Cleaned,
    /// Complete, and about to replace the segments it was made from.
    Swap,
}

impl Stage {
    pub const ALL: [Stage; 4] = [Stage::Live, Stage::Deleted, Stage::Cleaned, Stage::Swap];

    const fn suffix(self) -> &'static str {
        match self {
            Stage::Live => "",
            Stage::Deleted => ".deleted",
            Stage::Cleaned => ".cleaned",
            Stage::Swap => ".swap",
        }
    }
}

/// A segment file's name: base offset as twenty digits, kind, stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName {
    pub base_offset: i64,
    pub kind: Kind,
    pub stage: Stage,
}

impl FileName {
    pub const fn live(base_offset: i64, kind: Kind) -> Self {
        Self { base_offset, kind, stage: Stage::Live }
    }

    pub const fn at(self, stage: Stage) -> Self {
        Self { stage, ..self }
    }

    /// Parses a file name; `None` if it is not a segment file's.
    pub fn parse(text: &str) -> Option<Self> {
        let (digits, rest) = text.split_at_checked(text.find('.')?)?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let base_offset = digits.parse().ok()?;
        let kind = Kind::ALL.into_iter().find(|kind| {
            rest.strip_prefix(kind.extension()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })?;
        let suffix = &rest[kind.extension().len()..];
        let stage = Stage::ALL.into_iter().find(|stage| stage.suffix() == suffix)?;
        Some(Self { base_offset, kind, stage })
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:020}{}{}", self.base_offset, self.kind.extension(), self.stage.suffix())
    }
}

/// The purpose of a partition's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirStage {
    Live,
    Delete,
    Future,
    Stray,
}

impl DirStage {
    const fn suffix(self) -> &'static str {
        match self {
            DirStage::Live => "",
            DirStage::Delete => "-delete",
            DirStage::Future => "-future",
            DirStage::Stray => "-stray",
        }
    }
}

/// The longest file name that a file system accepts.
const NAME_MAX: usize = 255;

/// The name of a partition's directory: `topic-partition`, or `topic-partition.<unique>-<stage>`.
///
/// `unique` is 32 hex digits. The topic in the names of deleted or stray directories is shortened so that the name
/// has at most 255 bytes.
pub fn partition_dir(topic: &str, partition: i32, stage: DirStage, unique: &str) -> String {
    match stage {
        DirStage::Live => format!("{topic}-{partition}"),
        DirStage::Future => format!("{topic}-{partition}.{unique}{}", stage.suffix()),
        DirStage::Delete | DirStage::Stray => {
            let tail = format!("-{partition}.{unique}{}", stage.suffix());
            let room = NAME_MAX.saturating_sub(tail.len()).min(topic.len());
            format!("{}{tail}", &topic[..topic.floor_char_boundary(room)])
        }
    }
}

/// Parses the name of a partition's directory into topic, partition and stage; `None` if it is not one.
pub fn parse_partition_dir(name: &str) -> Option<(&str, i32, DirStage)> {
    let staged = [DirStage::Delete, DirStage::Future, DirStage::Stray]
        .into_iter()
        .find_map(|stage| name.strip_suffix(stage.suffix()).map(|rest| (stage, rest)));
    let (stage, name) = match staged {
        None => (DirStage::Live, name),
        Some((stage, rest)) => {
            let (name, unique) = rest.rsplit_once('.')?;
            if unique.is_empty() {
                return None;
            }
            (stage, name)
        }
    };
    let (topic, partition) = name.rsplit_once('-')?;
    if topic.is_empty() || !partition.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((topic, partition.parse().ok()?, stage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_kafkas() {
        let name = FileName::live(1234, Kind::TimeIndex);
        assert_eq!(name.to_string(), "00000000000000001234.timeindex");
        assert_eq!(name.at(Stage::Deleted).to_string(), "00000000000000001234.timeindex.deleted");
        for kind in Kind::ALL {
            for stage in Stage::ALL {
                let name = FileName::live(i64::MAX, kind).at(stage);
                assert_eq!(FileName::parse(&name.to_string()), Some(name));
            }
        }
    }

    #[test]
    fn other_names_are_no_segment_files() {
        for name in [
            "leader-epoch-checkpoint",
            "partition.metadata",
            "00000000000000000000-0000000001.checkpoint",
            "00000000000000000000.logs",
            "00000000000000000000.log.tmp",
            "99999999999999999999.log",
            ".log",
            "-1.log",
            "",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn directory_names_are_kafkas() {
        let unique = "0123456789abcdef0123456789abcdef";
        assert_eq!(partition_dir("a-b", 3, DirStage::Live, ""), "a-b-3");
        assert_eq!(partition_dir("t", 0, DirStage::Delete, unique), format!("t-0.{unique}-delete"));
        assert_eq!(partition_dir(&"t".repeat(249), 10, DirStage::Stray, unique).len(), 255);
        assert_eq!(parse_partition_dir("a-b-3"), Some(("a-b", 3, DirStage::Live)));
        assert_eq!(parse_partition_dir(&format!("a.b-3.{unique}-future")), Some(("a.b", 3, DirStage::Future)));
        for name in ["a", "-3", "a-", "a-x", "a--1x", "a-3-delete", "a-99999999999"] {
            assert_eq!(parse_partition_dir(name), None, "{name}");
        }
    }
}
