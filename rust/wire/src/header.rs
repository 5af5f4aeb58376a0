//! The headers of requests and responses.
//!
//! A request's header has version 2 if the request's version is flexible, else 1; a response's header has version 1
//! if it is flexible, else 0, except that the response to ApiVersions always has header version 0, because the client
//! does not know yet what the server supports.

use std::borrow::Cow;

use klamm_base::primitives::{Reader, WireError, Writer};

use super::api::{API_VERSIONS, Api};
use super::versioned::VersionedReader;

/// The parsed header. The position of the request's own fields is returned separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    pub api: &'static Api,
    pub api_version: i16,
    pub correlation_id: i32,
    /// Null counts as empty, as in Apache Kafka.
    pub client_id: Cow<'a, str>,
}

/// A header that cannot be answered: the connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("unknown API key {key} (version {version})")]
    UnknownApi { key: i16, version: i16 },
    #[error("malformed request header, API key {key}: {source}")]
    Malformed { key: i16, source: WireError },
}

impl<'a> RequestHeader<'a> {
    /// Parses the header at the start of a frame's content; the bytes after it are the request.
    pub fn parse(frame: &'a [u8]) -> Result<(Self, &'a [u8]), HeaderError> {
        let mut reader = Reader::new(frame);
        let (key, version) = match (reader.i16(), reader.i16()) {
            (Ok(key), Ok(version)) => (key, version),
            (Ok(key), Err(source)) => return Err(HeaderError::Malformed { key, source }),
            (Err(source), _) => return Err(HeaderError::Malformed { key: -1, source }),
        };
        let api = Api::of(key).ok_or(HeaderError::UnknownApi { key, version })?;
        Self::parse_rest(api, version, reader.remaining()).map_err(|source| HeaderError::Malformed { key, source })
    }

    fn parse_rest(api: &'static Api, api_version: i16, rest: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        // The client id keeps its non-compact encoding in version 2, so that any server can parse any ApiVersions
        // request.
        let mut reader = VersionedReader::new(rest, false);
        let correlation_id = reader.i32()?;
        let client_id = reader.nullable_string()?.unwrap_or_default();
        if api.is_flexible(api_version) {
            reader.reader.skip_tagged_fields()?;
        }
        Ok((Self { api, api_version, correlation_id, client_id }, reader.reader.remaining()))
    }
}

/// The parts of a request's header that its response needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    pub correlation_id: i32,
    pub flexible: bool,
}

impl ResponseHeader {
    /// The header of the response to `request`.
    pub fn to(request: &RequestHeader<'_>) -> Self {
        let flexible = request.api.key != API_VERSIONS && request.api.is_flexible(request.api_version);
        Self { correlation_id: request.correlation_id, flexible }
    }

    /// Writes a frame's length (still zero) and the header; call [`patch_length`] after the body is written.
    pub fn begin_frame(&self, writer: &mut Writer) {
        writer.i32(0);
        writer.i32(self.correlation_id);
        if self.flexible {
            writer.no_tagged_fields();
        }
    }
}

/// Sets the length of the frame that begins at `start`: all bytes after the length field, plus `len_elsewhere` bytes
/// that are not in the writer.
pub fn patch_length(writer: &mut Writer, start: usize, len_elsewhere: u64) -> Result<(), FrameTooLong> {
    let len = (writer.len() - start - 4) as u64 + len_elsewhere;
    let len = i32::try_from(len).map_err(|_| FrameTooLong(len))?;
    writer.as_mut_slice()[start..start + 4].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// A response that is too long for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a response of {0} bytes is too long for a frame")]
pub struct FrameTooLong(u64);

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: i16, version: i16, rest: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.i16(key);
        writer.i16(version);
        writer.i32(7);
        writer.slice(rest);
        writer.into_bytes()
    }

    #[test]
    fn flexible_versions_have_tags_after_the_client_id() {
        let frame = request(3, 9, b"\x00\x02me\x01\x05\x01xbody");
        let (header, body) = RequestHeader::parse(&frame).expect("well formed");
        assert_eq!((&*header.client_id, header.correlation_id, body), ("me", 7, &b"body"[..]));
        let frame = request(3, 8, b"\xff\xffbody");
        let (header, body) = RequestHeader::parse(&frame).expect("well formed");
        assert_eq!((&*header.client_id, body), ("", &b"body"[..]));
    }

    #[test]
    fn an_api_versions_request_of_any_version_is_read() {
        for version in [3, 5, 127, i16::MAX] {
            let frame = request(18, version, b"\x00\x02me\x00");
            let (header, _) = RequestHeader::parse(&frame).expect("well formed");
            assert_eq!(ResponseHeader::to(&header), ResponseHeader { correlation_id: 7, flexible: false });
        }
    }

    #[test]
    fn invalid_headers_are_rejected() {
        let unknown = HeaderError::UnknownApi { key: 4, version: 1 };
        assert_eq!(RequestHeader::parse(&request(4, 1, b"\xff\xff")), Err(unknown));
        for frame in [&b""[..], b"\x00", b"\x00\x03\x00", b"\x00\x03\x00\x09\x00\x00\x00\x01\x00\x20x"] {
            assert!(matches!(RequestHeader::parse(frame), Err(HeaderError::Malformed { .. })), "{frame:?}");
        }
    }

    #[test]
    fn the_length_excludes_itself() {
        let mut writer = Writer::new();
        writer.slice(b"earlier");
        ResponseHeader { correlation_id: 1, flexible: true }.begin_frame(&mut writer);
        patch_length(&mut writer, 7, 100).expect("fits");
        assert_eq!(&writer.as_slice()[7..], [0, 0, 0, 105, 0, 0, 0, 1, 0]);
        assert!(patch_length(&mut writer, 7, i32::MAX as u64).is_err());
    }
}
