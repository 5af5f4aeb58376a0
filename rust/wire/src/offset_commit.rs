//! OffsetCommit v2-10: the request, combined with the caller's knowledge of its topics, and the response. The group
//! coordinator decides which group and member may commit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use klamm_base::primitives::{WireError, Writer};
use klamm_base::{ErrorCode, Uuid};

use super::api::{Api, OFFSET_COMMIT};
use super::topic::TopicRef;
use super::versioned::{VersionedReader, VersionedWriter};

/// A request whose topics and partitions were looked up.
#[derive(Debug)]
pub struct OffsetCommitRequest {
    pub version: i16,
    pub group_id: String,
    /// The generation, or the member epoch (KIP-848).
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
    /// -1: the broker's configuration applies.
    pub retention_time_ms: i64,
    /// A topic without partitions is kept, once, if it is unknown: Apache Kafka includes it in the response.
    pub topics: Vec<CommitTopic>,
}

/// An existing topic.
#[derive(Clone, Debug)]
pub struct KnownTopic {
    pub name: Arc<str>,
    pub id: Uuid,
    pub partition_count: usize,
}

/// Looks up a topic by name or id; `None` if it does not exist.
pub type FindTopic<'f> = dyn Fn(&TopicRef<'_>) -> Option<KnownTopic> + 'f;

/// A topic of the request.
#[derive(Debug)]
pub struct CommitTopic {
    /// Empty for an unknown id.
    pub name: Arc<str>,
    /// Zero for an unknown name.
    pub id: Uuid,
    pub partitions: Vec<CommitPartition>,
}

/// An offset to commit.
#[derive(Debug)]
pub struct CommitPartition {
    pub index: i32,
    pub offset: i64,
    pub leader_epoch: i32,
    /// Empty if it is null in the request.
    pub metadata: Box<str>,
    /// An error if the topic or the partition does not exist: then there is nothing to commit.
    pub refused: ErrorCode,
}

impl CommitPartition {
    /// Whether the group may commit it.
    pub fn exists(&self) -> bool {
        !self.refused.is_error()
    }
}

/// From this version on, topics are identified by id.
const TOPIC_ID_VERSION: i16 = 10;

impl OffsetCommitRequest {
    /// Parses a body of `version` and looks up its topics.
    pub fn read(version: i16, body: &[u8], find_topic: &FindTopic<'_>) -> Result<Self, WireError> {
        let mut reader = VersionedReader::new(body, is_flexible(version));
        let group_id = reader.string()?.into_owned();
        let generation_id = reader.i32()?;
        let member_id = reader.string()?.into_owned();
        let instance = if version >= 7 { reader.nullable_string()? } else { None };
        let retention_time_ms = if version <= 4 { reader.i64()? } else { -1 };
        let (mut topics, mut bare) = (Vec::new(), HashSet::new());
        for _ in 0..reader.array_len(3)? {
            let (topic, is_known) = read_topic(&mut reader, version, find_topic)?;
            // A topic without partitions takes many times its bytes, so it is kept only once.
            if !topic.partitions.is_empty() || (!is_known && bare.insert((topic.name.clone(), topic.id))) {
                topics.push(topic);
            }
        }
        reader.skip_tags()?;
        let group_instance_id = instance.map(|id| id.into_owned());
        Ok(Self { version, group_id, generation_id, member_id, group_instance_id, retention_time_ms, topics })
    }

    /// The offsets that the group may commit, each with its topic, in order.
    pub fn existing(&self) -> impl Iterator<Item = (&CommitTopic, &CommitPartition)> {
        let topics = self.topics.iter();
        topics.flat_map(|topic| topic.partitions.iter().filter(|it| it.exists()).map(move |it| (topic, it)))
    }

    /// Writes the response body; `code` is called once for each of [`OffsetCommitRequest::existing`], in order.
    ///
    /// Topics are in the order of the request. If a topic or partition is unknown, each topic appears once, and those
    /// with unknown parts come first (Apache Kafka's `OffsetCommitResponse.Builder`).
    pub fn write_answer(&self, writer: &mut Writer, mut code: impl FnMut() -> ErrorCode) {
        let coded: Vec<Coded<'_>> = match self.has_refused() {
            true => self.merged(&mut code),
            false => {
                let mut coded = |topic: &CommitTopic| topic.partitions.iter().map(|it| (it.index, code())).collect();
                self.topics.iter().map(|topic| (topic, coded(topic))).collect()
            }
        };
        let mut answer = VersionedWriter::new(writer, is_flexible(self.version));
        if self.version >= 3 {
            answer.throttle_time(0);
        }
        answer.array_len(coded.len());
        for (topic, partitions) in coded {
            write_topic(&mut answer, self.version, topic, &partitions);
        }
        answer.no_tags();
    }

    fn has_refused(&self) -> bool {
        self.topics.iter().any(|topic| topic.partitions.is_empty() || topic.partitions.iter().any(|it| !it.exists()))
    }

    fn merged(&self, code: &mut impl FnMut() -> ErrorCode) -> Vec<Coded<'_>> {
        let (mut merged, mut places) = (Vec::<Coded<'_>>::new(), HashMap::new());
        for pass in [false, true] {
            for topic in &self.topics {
                let mut of_pass = topic.partitions.iter().filter(|it| it.exists() == pass).peekable();
                if of_pass.peek().is_none() && !topic.partitions.is_empty() {
                    continue;
                }
                let place = *places.entry((&*topic.name, topic.id)).or_insert_with(|| {
                    merged.push((topic, Vec::new()));
                    merged.len() - 1
                });
                merged[place].1.extend(of_pass.map(|it| (it.index, if pass { code() } else { it.refused })));
            }
        }
        merged
    }
}

/// A topic of the response, with the index and error code of each partition.
type Coded<'a> = (&'a CommitTopic, Vec<(i32, ErrorCode)>);

fn is_flexible(version: i16) -> bool {
    Api::of(OFFSET_COMMIT).is_some_and(|api| api.is_flexible(version))
}

fn write_topic(answer: &mut VersionedWriter<'_>, version: i16, topic: &CommitTopic, partitions: &[(i32, ErrorCode)]) {
    match version >= TOPIC_ID_VERSION {
        true => answer.uuid(topic.id),
        false => answer.string(&topic.name),
    }
    answer.array_len(partitions.len());
    for (index, code) in partitions {
        answer.i32(*index);
        answer.i16(code.0);
        answer.no_tags();
    }
    answer.no_tags();
}

/// A topic of the request, and whether it exists.
fn read_topic(
    reader: &mut VersionedReader<'_>,
    version: i16,
    find_topic: &FindTopic<'_>,
) -> Result<(CommitTopic, bool), WireError> {
    let named = TopicRef::read(reader, version >= TOPIC_ID_VERSION)?;
    let unknown = match &named {
        TopicRef::Name(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        TopicRef::Id(_) => ErrorCode::UNKNOWN_TOPIC_ID,
    };
    let topic = find_topic(&named);
    let partition_count = topic.as_ref().map(|topic| topic.partition_count);
    let partitions = reader.array(12, |reader| read_partition(reader, version, partition_count, unknown))?;
    reader.skip_tags()?;
    let is_known = topic.is_some();
    let found = match (topic, named) {
        (Some(topic), _) => CommitTopic { name: topic.name, id: topic.id, partitions },
        (None, TopicRef::Name(name)) => CommitTopic { name: (&*name).into(), id: Uuid::ZERO, partitions },
        (None, TopicRef::Id(id)) => CommitTopic { name: "".into(), id, partitions },
    };
    Ok((found, is_known))
}

fn read_partition(
    reader: &mut VersionedReader<'_>,
    version: i16,
    partition_count: Option<usize>,
    unknown: ErrorCode,
) -> Result<CommitPartition, WireError> {
    let (index, offset) = (reader.i32()?, reader.i64()?);
    let leader_epoch = if version >= 6 { reader.i32()? } else { -1 };
    let metadata = reader.nullable_string()?.unwrap_or_default().into();
    reader.skip_tags()?;
    let refused = match partition_count.map(|count| usize::try_from(index).is_ok_and(|index| index < count)) {
        Some(true) => ErrorCode::NONE,
        Some(false) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        None => unknown,
    };
    Ok(CommitPartition { index, offset, leader_epoch, metadata, refused })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 8: group "g" without a generation commits offset 1 of partition 7 of topic "t".
    const REQUEST: &[u8] =
        b"\x02g\xff\xff\xff\xff\x01\x00\x02\x02t\x02\0\0\0\x07\0\0\0\0\0\0\0\x01\xff\xff\xff\xff\x01\0\0\0";

    fn read(body: &[u8]) -> Result<OffsetCommitRequest, WireError> {
        OffsetCommitRequest::read(8, body, &|_| None)
    }

    fn answer(request: &OffsetCommitRequest, codes: &[i16]) -> Vec<u8> {
        let (mut writer, mut codes) = (Writer::new(), codes.iter());
        request.write_answer(&mut writer, || ErrorCode(*codes.next().expect("a code for each")));
        assert_eq!(codes.next(), None);
        writer.as_slice().to_vec()
    }

    fn topic(name: &str, partitions: &[(i32, i16)]) -> CommitTopic {
        let partition = |(index, refused): &(i32, i16)| CommitPartition {
            index: *index,
            offset: 1,
            leader_epoch: -1,
            metadata: "".into(),
            refused: ErrorCode(*refused),
        };
        CommitTopic { name: name.into(), id: Uuid::ZERO, partitions: partitions.iter().map(partition).collect() }
    }

    #[test]
    fn unknown_partitions_are_rejected() {
        let request = read(REQUEST).expect("a whole request");
        assert_eq!((&*request.group_id, request.generation_id, &*request.member_id), ("g", -1, ""));
        assert_eq!(request.existing().count(), 0);
        assert_eq!(answer(&request, &[]), b"\0\0\0\0\x02\x02t\x02\0\0\0\x07\0\x03\0\0\0");
    }

    #[test]
    fn an_answer_has_the_request_s_order_unless_a_partition_is_rejected() {
        let mut request = read(REQUEST).expect("a whole request");
        request.topics = vec![topic("a", &[(0, 0), (1, 0)]), topic("b", &[(5, 0)])];
        let coded = b"\0\0\0\0\x03\x02a\x03\0\0\0\0\0\0\0\0\0\0\x01\0\x0c\0\0\x02b\x02\0\0\0\x05\0\0\0\0\0";
        assert_eq!(answer(&request, &[0, 12, 0]), coded);
        request.topics.push(topic("b", &[(6, 3)]));
        let merged =
            b"\0\0\0\0\x03\x02b\x03\0\0\0\x06\0\x03\0\0\0\0\x05\0\0\0\0\x02a\x03\0\0\0\0\0\0\0\0\0\0\x01\0\x0c\0\0\0";
        assert_eq!(answer(&request, &[0, 12, 0]), merged);
    }

    #[test]
    fn an_unknown_topic_without_partitions_is_named_in_the_answer() {
        let request = read(b"\x02g\xff\xff\xff\xff\x01\x00\x02\x02t\x01\0\0").expect("a whole request");
        assert_eq!(answer(&request, &[]), b"\0\0\0\0\x02\x02t\x01\0\0");
    }

    #[test]
    fn a_repeated_unknown_topic_is_in_the_answer_once_at_its_first_position() {
        let bare = |name: &[u8; 1]| [b"\x02", name.as_slice(), b"\x01\0"].concat();
        let of_one: &[u8] = b"\x02t\x02\0\0\0\x07\0\0\0\0\0\0\0\x01\xff\xff\xff\xff\x01\0\0";
        let topics = [&bare(b"t"), of_one, &bare(b"a"), &bare(b"t"), of_one].concat();
        let body = [b"\x02g\xff\xff\xff\xff\x01\x00\x06", topics.as_slice(), b"\0"].concat();
        let request = read(&body).expect("a whole request");
        let named = b"\0\0\0\0\x03\x02t\x03\0\0\0\x07\0\x03\0\0\0\0\x07\0\x03\0\0\x02a\x01\0\0";
        assert_eq!(answer(&request, &[]), named);
    }

    #[test]
    fn a_truncated_request_is_rejected() {
        for len in 0..REQUEST.len() {
            assert!(read(&REQUEST[..len]).is_err(), "{len}");
        }
    }
}
