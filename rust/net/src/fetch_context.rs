//! The partitions of a Fetch request: those that it contains, or those of its session (KIP-227).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use klamm_base::ErrorCode;
use klamm_wire::fetch::{FetchRequest, TOPIC_ID_VERSION};
use klamm_wire::topic::TopicRef;
use parking_lot::Mutex;

use super::backend::Backend;
use super::fetch_read::{PartitionResult, ReadBy};
use super::session::{Session, SessionPartitions, TopicKey, Wanted, next_epoch};
use super::sessions::{SessionRule, Sessions};

/// Epoch of a request that opens a session.
const INITIAL_EPOCH: i32 = 0;
/// Epoch of a request that uses no session, or ends its session.
const FINAL_EPOCH: i32 = -1;
const NO_SESSION: i32 = 0;

pub enum Context {
    Sessionless(Vec<Wanted>),
    /// The request contains all partitions, and the response opens a session.
    Full {
        wanted: Vec<Wanted>,
        privileged: bool,
        uses_topic_ids: bool,
    },
    /// The response contains only what changed in the session at this epoch.
    Session {
        session: Arc<Mutex<Session>>,
        epoch: i32,
    },
}

impl TopicKey {
    /// The key of a topic as the request identifies it.
    pub fn of(topic: &TopicRef<'_>) -> Self {
        match topic {
            TopicRef::Name(name) => Self::Name((&**name).into()),
            TopicRef::Id(id) => Self::Id(*id),
        }
    }
}

impl Context {
    /// Determines the partitions of the request, and updates its session.
    pub fn open(
        sessions: &Sessions,
        request: &FetchRequest<'_>,
        version: i16,
        backend: &dyn Backend,
    ) -> Result<Self, ErrorCode> {
        let uses_topic_ids = version >= TOPIC_ID_VERSION;
        if matches!(request.session_epoch, INITIAL_EPOCH | FINAL_EPOCH) {
            sessions.remove(request.session_id);
            let wanted = each_once(wanted(request).collect());
            return Ok(match request.session_epoch {
                FINAL_EPOCH => Self::Sessionless(wanted),
                _ => Self::Full { wanted, privileged: request.is_from_follower(), uses_topic_ids },
            });
        }
        let found = sessions.get(request.session_id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        let mut session = found.lock();
        let epoch = sessions.keeps(SessionRule::CheckEpoch).then_some(request.session_epoch);
        session.check(epoch, uses_topic_ids)?;
        change(&mut session.partitions, request, sessions.keeps(SessionRule::Forget));
        if session.partitions.is_empty() {
            drop(session);
            sessions.remove(request.session_id);
            return Ok(Self::Sessionless(each_once(wanted(request).collect())));
        }
        let now_ms = backend.now_ms();
        session.begin_fetch(ReadBy::of(request, version), &backend.image(), now_ms);
        sessions.touch(now_ms, request.session_id, session.partitions.len());
        session.epoch = next_epoch(session.epoch);
        let epoch = session.epoch;
        drop(session);
        Ok(Self::Session { session: found, epoch })
    }

    /// The error and session id of a response that contains nothing, which opens no session.
    pub fn without_partitions(&self) -> (ErrorCode, i32) {
        match self {
            Self::Sessionless(_) | Self::Full { .. } => (ErrorCode::NONE, NO_SESSION),
            Self::Session { session, epoch } => {
                let session = session.lock();
                let is_current = session.epoch == *epoch;
                (if is_current { ErrorCode::NONE } else { ErrorCode::INVALID_FETCH_SESSION_EPOCH }, session.id)
            }
        }
    }

    /// Records what the response contains; returns its error and session id. After an error the response has no
    /// partitions.
    pub fn record(&self, sessions: &Sessions, results: &[PartitionResult], now_ms: i64) -> (ErrorCode, i32) {
        match self {
            Self::Sessionless(_) => (ErrorCode::NONE, NO_SESSION),
            Self::Full { wanted, privileged, uses_topic_ids } => {
                let mut partitions = SessionPartitions::default();
                for (wanted, partition) in wanted.iter().zip(results) {
                    partitions.want_sent(wanted.clone(), &partition.result);
                }
                (ErrorCode::NONE, sessions.create(now_ms, *privileged, *uses_topic_ids, partitions))
            }
            Self::Session { session, epoch } => {
                let mut session = session.lock();
                if session.epoch != *epoch {
                    // Another request has used the session meanwhile: what it received must not be sent again.
                    return (ErrorCode::INVALID_FETCH_SESSION_EPOCH, session.id);
                }
                for partition in results {
                    session.partitions.record(partition.number, &partition.result);
                }
                (ErrorCode::NONE, session.id)
            }
        }
    }
}

fn wanted<'a>(request: &FetchRequest<'a>) -> impl Iterator<Item = Wanted> + 'a {
    request.topics.clone().flat_map(|topic| {
        let key = TopicKey::of(&topic.topic);
        topic.partitions.map(move |partition| Wanted { topic: key.clone(), partition })
    })
}

/// A repeated partition uses its last parameters at its first position, as in Apache Kafka.
fn each_once(wanted: Vec<Wanted>) -> Vec<Wanted> {
    if wanted.len() < 2 {
        return wanted;
    }
    let mut places = HashMap::with_capacity(wanted.len());
    let mut once: Vec<Wanted> = Vec::with_capacity(wanted.len());
    for wanted in wanted {
        match places.entry((wanted.topic.clone(), wanted.partition.index)) {
            Entry::Occupied(place) => once[*place.get()] = wanted,
            Entry::Vacant(place) => {
                place.insert(once.len());
                once.push(wanted);
            }
        }
    }
    once
}

fn change(partitions: &mut SessionPartitions, request: &FetchRequest<'_>, forgets: bool) {
    for wanted in wanted(request) {
        partitions.want(wanted);
    }
    for forgotten in request.forgotten.clone().filter(|_| forgets) {
        let key = TopicKey::of(&forgotten.topic);
        for index in forgotten.partitions {
            partitions.forget(&key, index);
        }
    }
}
