//! Share sessions: the partitions that a member fetches from this node (`ShareSessionCache`, `ShareSession`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use klamm_base::{ErrorCode, Uuid};

use crate::session::next_epoch;

/// Opens a session.
pub const INITIAL_EPOCH: i32 = 0;
/// Closes a session.
pub const FINAL_EPOCH: i32 = -1;

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberKey {
    pub group: Arc<str>,
    pub member: Arc<str>,
}

/// A partition of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShareTarget {
    pub topic: Uuid,
    pub index: i32,
}

/// What a ShareFetch request changes in its session.
#[derive(Clone, Debug, Default)]
pub struct Subscription {
    pub added: Vec<ShareTarget>,
    pub forgotten: Vec<ShareTarget>,
}

/// A session that has ended.
#[derive(Debug)]
pub struct Ended {
    pub key: MemberKey,
    pub targets: Vec<ShareTarget>,
}

#[derive(Debug)]
struct Session {
    /// The epoch of the next request.
    epoch: i32,
    connection_id: u64,
    partitions: HashMap<ShareTarget, Place>,
    /// The order of the next place.
    next_order: u64,
}

/// A partition's place in its session.
#[derive(Debug)]
struct Place {
    /// Fetches read the partitions in this order.
    order: u64,
    /// The next response contains the partition in any case.
    is_due: bool,
}

impl Session {
    /// Adds a partition after all others, unless it is there.
    fn add(&mut self, target: ShareTarget, is_due: bool) {
        if let Entry::Vacant(vacant) = self.partitions.entry(target) {
            vacant.insert(Place { order: self.next_order, is_due });
            self.next_order += 1;
        }
    }

    /// Its partitions in their order.
    fn targets(&self) -> Vec<ShareTarget> {
        let mut places: Vec<_> = self.partitions.iter().map(|(target, place)| (place.order, *target)).collect();
        places.sort_unstable_by_key(|(order, _)| *order);
        places.into_iter().map(|(_, target)| target).collect()
    }
}

/// All share sessions of a node.
#[derive(Debug, Default)]
pub struct ShareSessions {
    sessions: HashMap<MemberKey, Session>,
    /// The session that a connection opened last, which ends with it.
    by_connection: HashMap<u64, MemberKey>,
    members: HashMap<Arc<str>, usize>,
}

impl ShareSessions {
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn partition_count(&self) -> usize {
        self.sessions.values().map(|session| session.partitions.len()).sum()
    }

    pub fn has_members(&self, group: &str) -> bool {
        self.members.contains_key(group)
    }

    pub fn check_exists(&self, key: &MemberKey) -> Result<(), ErrorCode> {
        if self.sessions.contains_key(key) { Ok(()) } else { Err(ErrorCode::SHARE_SESSION_NOT_FOUND) }
    }

    /// Opens a session in place of an earlier one, whose locks are kept.
    pub fn open(
        &mut self,
        key: &MemberKey,
        connection_id: u64,
        targets: &[ShareTarget],
        sessions_max: usize,
    ) -> Result<(), ErrorCode> {
        self.remove(key);
        if self.sessions.len() >= sessions_max {
            return Err(ErrorCode::SHARE_SESSION_LIMIT_REACHED);
        }
        let epoch = next_epoch(INITIAL_EPOCH);
        let mut session = Session { epoch, connection_id, partitions: HashMap::new(), next_order: 0 };
        targets.iter().for_each(|target| session.add(*target, false));
        self.sessions.insert(key.clone(), session);
        self.by_connection.insert(connection_id, key.clone());
        *self.members.entry(key.group.clone()).or_default() += 1;
        Ok(())
    }

    /// Takes the next request of a session; returns its epoch after it.
    pub fn advance(&mut self, key: &MemberKey, epoch: i32) -> Result<i32, ErrorCode> {
        let session = self.sessions.get_mut(key).ok_or(ErrorCode::SHARE_SESSION_NOT_FOUND)?;
        if session.epoch != epoch {
            return Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH);
        }
        session.epoch = next_epoch(epoch);
        Ok(session.epoch)
    }

    /// Adds and removes partitions; returns all that are in the session then.
    pub fn subscribe(&mut self, key: &MemberKey, subscription: &Subscription) -> Vec<ShareTarget> {
        let Some(session) = self.sessions.get_mut(key) else { return Vec::new() };
        subscription.added.iter().for_each(|target| session.add(*target, true));
        for target in &subscription.forgotten {
            session.partitions.remove(target);
        }
        session.targets()
    }

    /// Whether no later request has used the session.
    pub fn is_at(&self, key: &MemberKey, epoch: i32) -> bool {
        self.sessions.get(key).is_some_and(|session| session.epoch == epoch)
    }

    /// Whether the response must contain the partition; what it says is noted.
    pub fn must_send(&mut self, key: &MemberKey, target: ShareTarget, has_records: bool, has_error: bool) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return true };
        let Some(place) = session.partitions.get_mut(&target) else { return true };
        let is_due = std::mem::replace(&mut place.is_due, has_error);
        if has_records {
            // The others come first next time.
            place.order = session.next_order;
            session.next_order += 1;
        }
        has_records || has_error || is_due
    }

    /// Ends a session.
    pub fn remove(&mut self, key: &MemberKey) -> Option<Ended> {
        let session = self.sessions.remove(key)?;
        if self.by_connection.get(&session.connection_id) == Some(key) {
            // The connection stays known, because its end may be the end of the group here.
            let stale = MemberKey { group: key.group.clone(), member: "".into() };
            self.by_connection.insert(session.connection_id, stale);
        }
        if let Some(count) = self.members.get_mut(&key.group) {
            *count -= 1;
            if *count == 0 {
                self.members.remove(&key.group);
            }
        }
        Some(Ended { key: key.clone(), targets: session.targets() })
    }

    /// A connection was closed. Returns the group of the session that it opened last, and that session, if it is still open
    /// and was not opened again on another connection.
    pub fn on_disconnect(&mut self, connection_id: u64) -> Option<(Arc<str>, Option<Ended>)> {
        let key = self.by_connection.remove(&connection_id)?;
        let is_its_own = self.sessions.get(&key).is_some_and(|session| session.connection_id == connection_id);
        let ended = if is_its_own { self.remove(&key) } else { None };
        Some((key.group, ended))
    }

    /// Ends all of them.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(member: &str) -> MemberKey {
        MemberKey { group: "g".into(), member: member.into() }
    }

    fn target(index: i32) -> ShareTarget {
        ShareTarget { topic: Uuid([1; 16]), index }
    }

    #[test]
    fn epochs_follow_each_other() {
        let mut sessions = ShareSessions::default();
        assert_eq!(sessions.advance(&key("a"), 1), Err(ErrorCode::SHARE_SESSION_NOT_FOUND));
        sessions.open(&key("a"), 7, &[target(0)], 10).expect("room");
        assert_eq!(sessions.advance(&key("a"), 2), Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH));
        assert_eq!(sessions.advance(&key("a"), 1), Ok(2));
        assert!(sessions.is_at(&key("a"), 2));
    }

    #[test]
    fn a_session_keeps_its_partitions() {
        let mut sessions = ShareSessions::default();
        sessions.open(&key("a"), 7, &[target(0), target(1)], 10).expect("room");
        let change = Subscription { added: vec![target(2), target(1)], forgotten: vec![target(0)] };
        assert_eq!(sessions.subscribe(&key("a"), &change), [target(1), target(2)]);
        assert!(!sessions.must_send(&key("a"), target(1), false, false));
        assert!(sessions.must_send(&key("a"), target(2), false, false), "it is new");
        assert!(!sessions.must_send(&key("a"), target(2), false, false));
        assert!(sessions.must_send(&key("a"), target(1), true, false));
        assert_eq!(sessions.subscribe(&key("a"), &Subscription::default()), [target(2), target(1)]);
        assert!(sessions.must_send(&key("a"), target(1), false, true));
        assert!(sessions.must_send(&key("a"), target(1), false, false), "the error is over");
    }

    #[test]
    fn a_session_has_each_partition_once() {
        let mut sessions = ShareSessions::default();
        sessions.open(&key("a"), 7, &[target(1), target(0), target(1)], 10).expect("room");
        assert_eq!(sessions.partition_count(), 2);
        let again = Subscription { added: vec![target(2), target(2), target(0)], forgotten: Vec::new() };
        assert_eq!(sessions.subscribe(&key("a"), &again), [target(1), target(0), target(2)]);
    }

    #[test]
    fn the_end_of_a_connection_ends_only_its_own_session() {
        let mut sessions = ShareSessions::default();
        sessions.open(&key("a"), 7, &[target(0)], 10).expect("room");
        sessions.open(&key("a"), 8, &[target(0)], 10).expect("room");
        let (group, ended) = sessions.on_disconnect(7).expect("it had opened one");
        assert!(&*group == "g" && ended.is_none() && sessions.has_members("g"));
        let (_, ended) = sessions.on_disconnect(8).expect("it had opened one");
        assert_eq!(ended.expect("its own").targets, [target(0)]);
        assert!(!sessions.has_members("g") && sessions.on_disconnect(8).is_none());
    }

    #[test]
    fn the_number_of_sessions_is_limited() {
        let mut sessions = ShareSessions::default();
        sessions.open(&key("a"), 7, &[], 1).expect("room");
        assert_eq!(sessions.open(&key("b"), 8, &[], 1), Err(ErrorCode::SHARE_SESSION_LIMIT_REACHED));
        sessions.open(&key("a"), 8, &[], 1).expect("in its own place");
    }
}
