//! `meta.properties`: whose directory it is (facts 1.5).

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::Uuid;

use super::error::LogError;
use super::files::FileCache;

pub const META_PROPERTIES: &str = "meta.properties";

/// The content of a `meta.properties`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaProperties {
    /// 0 of the ZooKeeper era, 1 of KRaft.
    pub version: i32,
    pub cluster_id: Option<String>,
    /// `node.id`, or `broker.id` in version 0.
    pub node_id: Option<i32>,
    pub directory_id: Option<Uuid>,
}

/// The key and value of a line of a Java properties file; `None` for comments and empty lines.
fn property(line: &str) -> Option<(String, String)> {
    let line = line.trim_start();
    if line.is_empty() || line.starts_with(['#', '!']) {
        return None;
    }
    let mut fields = [String::new(), String::new()];
    let mut in_value = 0;
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => fields[in_value].extend(chars.next()),
            '=' | ':' if in_value == 0 => in_value = 1,
            char => fields[in_value].push(char),
        }
    }
    let [key, value] = fields;
    Some((key.trim_end().to_owned(), value.trim().to_owned()))
}

/// UTF-8, or Java's own Latin-1 where it is none: what `klamm.node.properties` accepts is accepted here.
fn decode(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) => text.trim_start_matches('\u{feff}').to_owned(),
        Err(error) => error.into_bytes().into_iter().map(char::from).collect(),
    }
}

fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for char in value.chars() {
        if matches!(char, '\\' | '=' | ':' | '#' | '!') {
            out.push('\\');
        }
        out.push(char);
    }
    out
}

impl MetaProperties {
    /// Reads the text; what is wrong with it, if it is.
    pub fn parse(text: &str) -> Result<Self, String> {
        let properties: Vec<(String, String)> = text.lines().filter_map(property).collect();
        let find = |key: &str| properties.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        let version = match find("version") {
            None | Some("0") => 0,
            Some("1") => 1,
            Some(version) => return Err(format!("version {version}, expected 0 or 1")),
        };
        let id_key = if version == 0 { "broker.id" } else { "node.id" };
        let node_id =
            find(id_key).map(|id| id.parse().map_err(|_| format!("{id_key}={id} is no number"))).transpose()?;
        let directory_id = find("directory.id")
            .map(|id| id.parse::<Uuid>().map_err(|error| format!("directory.id: {error}")))
            .transpose()?;
        let meta = Self { version, cluster_id: find("cluster.id").map(str::to_owned), node_id, directory_id };
        if version == 1 && meta.cluster_id.is_none() {
            return Err("cluster.id is missing".into());
        }
        if version == 1 && meta.node_id.is_none() {
            return Err("node.id is missing".into());
        }
        Ok(meta)
    }

    /// The text, with a fixed order of keys.
    pub fn format(&self) -> String {
        let mut text = String::from("#\n");
        if let Some(id) = &self.cluster_id {
            text += &format!("cluster.id={}\n", escaped(id));
        }
        if let Some(id) = self.directory_id {
            text += &format!("directory.id={id}\n");
        }
        if let Some(id) = self.node_id {
            text += &format!("{}={id}\n", if self.version == 0 { "broker.id" } else { "node.id" });
        }
        text + &format!("version={}\n", self.version)
    }

    /// Reads a directory's file; `None` when the directory is not formatted.
    pub fn read(dir: &Path) -> Result<Option<Self>, LogError> {
        let path = dir.join(META_PROPERTIES);
        let text = match fs::read(&path) {
            Ok(bytes) => decode(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LogError::io("cannot read", &path)(error)),
        };
        Self::parse(&text).map(Some).map_err(|reason| LogError::Corrupt { path, position: 0, reason })
    }

    /// Replaces a directory's file, durably.
    pub fn write(&self, cache: &Arc<FileCache>, dir: &Path) -> Result<(), LogError> {
        cache.replace(&dir.join(META_PROPERTIES), self.format().as_bytes(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kafkas_file_is_read() {
        let text = "#\n#Sat Jun 14 12:00:00 UTC 2025\ncluster.id=q1Sh-9_ISia_zwGINzRvyQ\n\
                    directory.id=ASNFZ4mrze_-3LqYdlQyEA\nnode.id=1\nversion=1\n";
        let meta = MetaProperties::parse(text).expect("valid");
        assert_eq!(meta.cluster_id.as_deref(), Some("q1Sh-9_ISia_zwGINzRvyQ"));
        assert_eq!((meta.version, meta.node_id), (1, Some(1)));
        assert_eq!(meta.directory_id.expect("there").to_string(), "ASNFZ4mrze_-3LqYdlQyEA");
    }

    #[test]
    fn the_old_version_is_read() {
        let meta = MetaProperties::parse("version=0\nbroker.id = 7\n").expect("valid");
        assert_eq!(meta, MetaProperties { node_id: Some(7), ..MetaProperties::default() });
        assert_eq!(MetaProperties::parse("").expect("valid"), MetaProperties::default());
    }

    #[test]
    fn what_is_missing_or_unknown_is_told() {
        for (text, word) in [
            ("version=2", "version 2"),
            ("version=1\nnode.id=1", "cluster.id"),
            ("version=1\ncluster.id=a", "node.id"),
            ("version=1\ncluster.id=a\nnode.id=x", "node.id=x"),
            ("version=1\ncluster.id=a\nnode.id=1\ndirectory.id=x", "directory.id"),
        ] {
            assert!(MetaProperties::parse(text).expect_err("refused").contains(word), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(cluster_id in "[!-~]{1,30}", node_id in 0..i32::MAX, id in any::<[u8; 16]>()) {
            let meta = MetaProperties { version: 1, cluster_id: Some(cluster_id), node_id: Some(node_id), directory_id: Some(Uuid(id)) };
            prop_assert_eq!(MetaProperties::parse(&meta.format()), Ok(meta));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,200}") {
            let _ = MetaProperties::parse(&text);
        }
    }
}
