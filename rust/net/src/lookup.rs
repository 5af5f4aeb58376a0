//! From what a request names to what the image has.

use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::MetadataImage;
use klamm_metadata::topic::Topic;

/// The topic of a name.
pub fn topic_named<'a>(image: &'a MetadataImage, name: &str) -> Result<&'a Topic, ErrorCode> {
    image.topics().by_name(name).map(|topic| &**topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}

/// The topic of an id.
pub fn topic_with_id(image: &MetadataImage, id: Uuid) -> Result<&Topic, ErrorCode> {
    image.topics().by_id(id).map(|topic| &**topic).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)
}

/// The topic's id, when it has such a partition.
pub fn id_with_partition(topic: &Topic, index: i32) -> Result<Uuid, ErrorCode> {
    match topic.partition(index) {
        Some(_) => Ok(topic.id()),
        None => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    }
}
