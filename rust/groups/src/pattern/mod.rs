//! Patterns of names: RE2's syntax as RE2/J 1.8 reads it, matched in time linear in the name.
//!
//! A pattern is parsed by RE2/J's rules and written down in the syntax of the `regex` crate, so that what both write
//! alike but mean differently (`\d`, `\s`, `\b`, `[[a]&&b]`) means what RE2/J means. What one of them lacks is an error
//! that names it. Unicode tables are those of the `regex` crate, which are newer.
mod classes;
mod translation;

use klamm_metadata::MetadataImage;
use regex::bytes::{Regex, RegexBuilder};

/// Bytes of a compiled pattern, which bounds both the time of the compilation and that of a match.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Bytes of the states that a match caches.
const CACHE_BYTES_MAX: usize = 1 << 20;

/// Why a text is not a pattern, in RE2/J's words where it has them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("{what}: `{part}`")]
    Invalid { what: &'static str, part: String },
    #[error("not supported: {0}")]
    NotSupported(String),
    #[error("the pattern needs more than {COMPILED_BYTES_MAX} bytes when compiled")]
    TooLarge,
}

/// A compiled pattern. It matches whole names.
#[derive(Debug, Clone)]
pub struct TopicPattern {
    source: String,
    compiled: Regex,
}

impl TopicPattern {
    /// Compiles a pattern.
    pub fn new(source: &str) -> Result<Self, PatternError> {
        let translated = translation::translate(source)?;
        let compiled = RegexBuilder::new(&format!(r"\A(?:{translated})\z"))
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(CACHE_BYTES_MAX)
            .build()
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
                other => PatternError::NotSupported(last_line(&other.to_string())),
            })?;
        Ok(Self { source: source.to_owned(), compiled })
    }

    /// The pattern as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it matches all of `name`.
    pub fn matches(&self, name: &str) -> bool {
        self.compiled.is_match(name.as_bytes())
    }

    /// The names of the topics that it matches, sorted by their bytes.
    pub fn matching(&self, image: &MetadataImage) -> Vec<String> {
        let names = image.topics().sorted_names();
        names.iter().filter(|name| self.matches(name)).map(|name| name.to_string()).collect()
    }
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
