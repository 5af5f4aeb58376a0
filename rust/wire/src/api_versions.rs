//! ApiVersions v0-4: the APIs of a listener, and the cluster's features (KIP-584).

use std::borrow::Cow;

use klamm_base::ErrorCode;
use klamm_base::primitives::{WireError, Writer};

use super::api::{API_VERSIONS, Api};
use super::versioned::{VersionedReader, VersionedWriter};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiVersionsRequest<'a> {
    pub client_software_name: Cow<'a, str>,
    pub client_software_version: Cow<'a, str>,
    version: i16,
}

impl<'a> ApiVersionsRequest<'a> {
    pub fn parse(body: &'a [u8], version: i16) -> Result<Self, WireError> {
        let mut reader = VersionedReader::new(body, version >= 3);
        let (client_software_name, client_software_version) = match version >= 3 {
            true => (reader.string()?, reader.string()?),
            false => Default::default(),
        };
        reader.skip_tags()?;
        Ok(Self { client_software_name, client_software_version, version })
    }

    /// Whether the client's software name and version are valid (KIP-511): letters, digits, `-` and `.`, the last two
    /// not at either end.
    pub fn is_valid(&self) -> bool {
        let is_decent = |text: &str| {
            let ends = [text.bytes().next(), text.bytes().next_back()];
            ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
        };
        self.version < 3 || (is_decent(&self.client_software_name) && is_decent(&self.client_software_version))
    }
}

/// The supported and finalized features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Name, lowest and highest level.
    pub supported: Vec<(String, i16, i16)>,
    /// Name and level; level 0 is equivalent to no entry.
    pub finalized: Vec<(String, i16)>,
    /// Metadata offset at which they were finalized; -1 if it is not known.
    pub finalized_epoch: i64,
}

/// The version range of one API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiRange {
    pub key: i16,
    pub version_min: i16,
    pub version_max: i16,
}

impl ApiRange {
    /// The versions in both ranges; `None` if there are none.
    pub fn intersect(&self, other: &ApiRange) -> Option<ApiRange> {
        let version_min = self.version_min.max(other.version_min);
        let version_max = self.version_max.min(other.version_max);
        (version_min <= version_max).then_some(ApiRange { version_min, version_max, ..*self })
    }
}

/// Writes the response body.
pub fn write_response(writer: &mut Writer, version: i16, apis: &[ApiRange], features: &Features) {
    let mut out = VersionedWriter::new(writer, version >= 3);
    write_apis(&mut out, version, ErrorCode::NONE, apis);
    if version >= 3 {
        write_features(out.writer, version, features);
    }
}

/// Writes a response body with only an error; `version` is 0 if the request's version is not supported.
pub fn write_error(writer: &mut Writer, version: i16, error: ErrorCode) {
    let api = Api::of(API_VERSIONS).expect("the table holds it");
    let own = [ApiRange { key: api.key, version_min: api.version_min, version_max: api.version_max }];
    let apis = if error == ErrorCode::UNSUPPORTED_VERSION { &own[..] } else { &[] };
    let mut out = VersionedWriter::new(writer, version >= 3);
    write_apis(&mut out, version, error, apis);
    out.no_tags();
}

fn write_apis(out: &mut VersionedWriter<'_>, version: i16, error: ErrorCode, apis: &[ApiRange]) {
    out.error_code(error);
    out.array_len(apis.len());
    for api in apis {
        out.i16(api.key);
        out.i16(api.version_min);
        out.i16(api.version_max);
        out.no_tags();
    }
    if version >= 1 {
        out.throttle_time(0);
    }
}

/// The four tagged fields: each is written only if it is not empty.
fn write_features(writer: &mut Writer, version: i16, features: &Features) {
    // Old clients fail on a lowest level of 0, so such features are not sent to them (KAFKA-17492).
    let supported: Vec<_> = features.supported.iter().filter(|(_, min, _)| version >= 4 || *min != 0).collect();
    let finalized: Vec<_> = features.finalized.iter().filter(|(_, level)| *level != 0).collect();
    let epoch = Some(features.finalized_epoch).filter(|&epoch| epoch != -1);
    let present = [!supported.is_empty(), epoch.is_some(), !finalized.is_empty()];
    writer.unsigned_varint(present.iter().map(|&present| u32::from(present)).sum());
    if !supported.is_empty() {
        writer
            .tagged_field(0, |field| write_levels(field, supported.iter().map(|(name, min, max)| (name, *min, *max))));
    }
    if let Some(epoch) = epoch {
        writer.tagged_field(1, |field| field.i64(epoch));
    }
    if !finalized.is_empty() {
        // Highest level first here, unlike above; both are the same level.
        writer
            .tagged_field(2, |field| write_levels(field, finalized.iter().map(|(name, level)| (name, *level, *level))));
    }
}

fn write_levels<'a>(field: &mut Writer, levels: impl ExactSizeIterator<Item = (&'a String, i16, i16)>) {
    field.compact_array_len(levels.len());
    for (name, first, second) in levels {
        field.compact_string(name);
        field.i16(first);
        field.i16(second);
        field.no_tagged_fields();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_software_names_are_validated() {
        for (name, version, valid) in [
            ("apache-kafka-java", "4.3.1", true),
            ("a", "1", true),
            ("", "1", false),
            ("-a", "1", false),
            ("a", "1_", false),
        ] {
            let request = ApiVersionsRequest {
                client_software_name: name.into(),
                client_software_version: version.into(),
                version: 3,
            };
            assert_eq!(request.is_valid(), valid, "{name} {version}");
        }
    }
}
