//! The requests of a client and their answers, as far as a client needs them.
//!
//! An answer comes from whoever listens there: what it claims is compared with the bytes that are left before anything
//! is allocated for it.

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

/// A request, and how its answer is read.
pub trait Request {
    const API: i16;
    /// The versions that are written here.
    const VERSION_MIN: i16;
    const VERSION_MAX: i16;
    type Answer;

    /// The newest version that can say what this request says.
    fn version_max(&self) -> i16 {
        Self::VERSION_MAX
    }

    fn write(&self, out: &mut VersionedWriter<'_>, version: i16);

    /// `body` is what follows the header of the answer.
    fn read(body: &Bytes, version: i16) -> Result<Self::Answer, WireError>;
}

/// Whether a version of an API has compact lengths and tagged fields.
pub(super) fn is_flexible(api: i16, version: i16) -> bool {
    Api::of(api).is_some_and(|api| api.is_flexible(version))
}

/// The name of an API, for people.
pub(super) fn name_of(api: i16) -> &'static str {
    Api::of(api).map_or("an unknown request", |api| api.name)
}

/// Writes an array of topics, each with an array of its items; those of a topic stand in one row.
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

/// Reads what `write_by_topic` writes; items take at least `item_size_min` bytes each.
///
/// The name of a topic is shared by its items: a few bytes each, they would else make it many times as long.
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

/// The frame of a request, its length in front. No text in it may be longer than the protocol's strings.
pub fn request_frame<R: Request>(request: &R, version: i16, correlation_id: i32, client_id: &str) -> Vec<u8> {
    let mut writer = begin_frame(R::API, version, correlation_id, client_id, 256);
    request.write(&mut VersionedWriter::new(&mut writer, is_flexible(R::API, version)), version);
    patch_length(&mut writer, 0, 0).expect("a request is bounded by max.request.size");
    writer.into_bytes()
}

/// The same of a body that was written elsewhere. An API that is not Kafka's has the oldest header.
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
    // Plain in every version of the header.
    writer.nullable_string(Some(client_id));
    if is_flexible(api, version) {
        writer.no_tagged_fields();
    }
    writer
}

/// The correlation id and the body of an answer's frame, which is without its length here.
pub fn split_answer(api: i16, version: i16, frame: &Bytes) -> Result<(i32, Bytes), WireError> {
    let mut reader = Reader::new(frame);
    let correlation_id = reader.i32()?;
    // ApiVersions is answered before the client knows what the server speaks.
    if api != API_VERSIONS && is_flexible(api, version) {
        reader.skip_tagged_fields()?;
    }
    Ok((correlation_id, frame.slice_ref(reader.remaining())))
}
