//! Looks up the topics of a request in the image, with authorization.

use klamm_base::{ErrorCode, Uuid};
use klamm_metadata::MetadataImage;
use klamm_metadata::topic::Topic;
use klamm_wire::api::{Api, Operation, Resource};

use super::authorization::Authorizer;
use crate::link::Link;

/// The topics of an image that one request may access.
///
/// The right to a name is checked before it is looked up, so that unknown and unauthorized topics look alike; an id
/// is looked up first, as in Apache Kafka (`KafkaApis`).
#[derive(Clone, Copy)]
pub struct Topics<'a> {
    pub image: &'a MetadataImage,
    authorizer: &'a Authorizer,
    connection: &'a Link,
    operation: Operation,
}

impl<'a> Topics<'a> {
    /// For the first operation on topics in the API's checks.
    pub fn new(authorizer: &'a Authorizer, connection: &'a Link, api: &Api, image: &'a MetadataImage) -> Self {
        let operation = api.operation_on(Resource::Topic).unwrap_or(Operation::Describe);
        Self { image, authorizer, connection, operation }
    }

    /// Whether the request may access this topic.
    #[inline]
    pub fn allows(&self, name: &str) -> bool {
        self.authorizer.allows(self.connection, self.operation, Resource::Topic, name)
    }

    /// The topic with this name.
    #[inline]
    pub fn named(&self, name: &str) -> Result<&'a Topic, ErrorCode> {
        if !self.allows(name) {
            return Err(Resource::Topic.refusal());
        }
        self.image.topics().by_name(name).map(|topic| &**topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    }

    /// The topic with this id.
    #[inline]
    pub fn with_id(&self, id: Uuid) -> Result<&'a Topic, ErrorCode> {
        let topic = self.image.topics().by_id(id).map(|topic| &**topic).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
        if self.allows(topic.name()) { Ok(topic) } else { Err(Resource::Topic.refusal()) }
    }

    /// All topics that the request may access.
    pub fn all(self) -> impl Iterator<Item = &'a Topic> {
        self.image.topics().iter().map(|topic| &**topic).filter(move |topic| self.allows(topic.name()))
    }
}

/// The topic's id if it has such a partition.
pub fn id_with_partition(topic: &Topic, index: i32) -> Result<Uuid, ErrorCode> {
    match topic.partition(index) {
        Some(_) => Ok(topic.id()),
        None => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Listener;
    use crate::testing::{INTERNAL, NAMED, image};
    use klamm_wire::api::{ListenerKind, METADATA};

    #[test]
    fn an_unauthorized_name_looks_like_an_unknown_topic_and_an_id_does_not() {
        let image = image();
        let connection = Link::new(1, ([127, 0, 0, 1], 1).into(), &Listener::new("L", ListenerKind::Broker));
        let api = Api::of(METADATA).expect("an API");
        for name in ["named", "absent"] {
            let authorizer = Authorizer::AllBut(Resource::Topic, name);
            let topics = Topics::new(&authorizer, &connection, api, &image);
            assert_eq!(topics.named(name).err(), Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
        }
        let authorizer = Authorizer::AllBut(Resource::Topic, "named");
        let topics = Topics::new(&authorizer, &connection, api, &image);
        assert_eq!(topics.with_id(NAMED).err(), Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
        assert_eq!(topics.with_id(Uuid([9; 16])).err(), Some(ErrorCode::UNKNOWN_TOPIC_ID));
        assert_eq!(topics.with_id(INTERNAL).map(|topic| &**topic.name()), Ok("__consumer_offsets"));
        let mut seen: Vec<_> = topics.all().map(|topic| topic.name().to_string()).collect();
        seen.sort_unstable();
        assert_eq!(seen, ["__consumer_offsets", "other"]);
        let everything = Authorizer::AllowAll;
        assert_eq!(Topics::new(&everything, &connection, api, &image).all().count(), 3);
    }
}
