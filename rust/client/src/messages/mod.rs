//! The requests of a client and their responses, as far as a client needs them.
//!
//! A response is not trusted: its lengths are compared with the remaining bytes before anything is allocated.

pub mod api_versions;
pub mod fetch;
pub mod list_offsets;
pub mod metadata;
pub mod offset_fetch;
pub mod produce;
pub mod sasl;
pub mod transactions;

use std::sync::Arc;

use bytes::Bytes;
use klamm_base::primitives::{Reader, WireError, Writer};
use klamm_wire::api::{API_VERSIONS, Api};
use klamm_wire::header::patch_length;
use klamm_wire::versioned::{VersionedReader, VersionedWriter};

/// A request, and how to parse its response.
pub trait Request {
    const API: i16;
    /// The supported versions.
    const VERSION_MIN: i16;
    const VERSION_MAX: i16;
    type Answer;

    /// The newest version that can express this request.
    fn version_max(&self) -> i16 {
        Self::VERSION_MAX
    }

    fn write(&self, out: &mut VersionedWriter<'_>, version: i16);

    /// `body` is the response without its header.
    fn read(body: &Bytes, version: i16) -> Result<Self::Answer, WireError>;
}

/// Whether a version of an API has compact lengths and tagged fields.
pub(super) fn is_flexible(api: i16, version: i16) -> bool {
    Api::of(api).is_some_and(|api| api.is_flexible(version))
}

/// The name of an API for messages.
pub(super) fn name_of(api: i16) -> &'static str {
    Api::of(api).map_or("an unknown request", |api| api.name)
}

/// Writes an array of topics, each with an array of its items; items of a topic are adjacent.
fn write_by_topic<T>(
    out: &mut VersionedWriter<'_>,
    items: &[T],
    topic_of: impl Fn(&T) -> &str,
    write: impl Fn(&mut VersionedWriter<'_>, &T),
) {
    out.array_len(items.chunk_by(|one, other| topic_of(one) == topic_of(other)).count());
    for of_topic in items.chunk_by(|one, other| topic_of(one) == topic_of(other)) {
        out.string(topic_of(&of_topic[0]));
        out.array_len(of_topic.len());
        for item in of_topic {
            write(out, item);
            out.no_tags();
        }
        out.no_tags();
    }
}

/// Reads the format of `write_by_topic`; items take at least `item_size_min` bytes each.
///
/// Items share the topic's name: copies would multiply the size of items of a few bytes.
fn read_by_topic(
    reader: &mut VersionedReader<'_>,
    item_size_min: usize,
    mut read: impl FnMut(&mut VersionedReader<'_>, &Arc<str>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    for _ in 0..reader.array_len(3)? {
        let topic: Arc<str> = reader.string()?.into();
        for _ in 0..reader.array_len(item_size_min)? {
            read(reader, &topic)?;
            reader.skip_tags()?;
        }
        reader.skip_tags()?;
    }
    Ok(())
}

/// The frame of a request including its length. Texts in it must fit into the protocol's strings.
pub fn request_frame<R: Request>(request: &R, version: i16, correlation_id: i32, client_id: &str) -> Vec<u8> {
    let mut writer = begin_frame(R::API, version, correlation_id, client_id, 256);
    request.write(&mut VersionedWriter::new(&mut writer, is_flexible(R::API, version)), version);
    patch_length(&mut writer, 0, 0).expect("a request is bounded by max.request.size");
    writer.into_bytes()
}

/// The same for an encoded body. An API that is not Kafka's has the oldest header.
pub fn raw_frame(api: i16, version: i16, correlation_id: i32, client_id: &str, body: &[u8]) -> Vec<u8> {
    let mut writer = begin_frame(api, version, correlation_id, client_id, 64 + client_id.len() + body.len());
    writer.slice(body);
    patch_length(&mut writer, 0, 0).expect("a request is shorter than 2 GiB");
    writer.into_bytes()
}

fn begin_frame(api: i16, version: i16, correlation_id: i32, client_id: &str, capacity: usize) -> Writer {
    let mut writer = Writer::with_capacity(capacity);
    writer.i32(0);
    writer.i16(api);
    writer.i16(version);
    writer.i32(correlation_id);
    // Not compact in any version of the header.
    writer.nullable_string(Some(client_id));
    if is_flexible(api, version) {
        writer.no_tagged_fields();
    }
    writer
}

/// The correlation id and the body of a response frame, without the frame's length.
pub fn split_answer(api: i16, version: i16, frame: &Bytes) -> Result<(i32, Bytes), WireError> {
    let mut reader = Reader::new(frame);
    let correlation_id = reader.i32()?;
    // ApiVersions is answered before the client knows the server's versions.
    if api != API_VERSIONS && is_flexible(api, version) {
        reader.skip_tagged_fields()?;
    }
    Ok((correlation_id, frame.slice_ref(reader.remaining())))
}
