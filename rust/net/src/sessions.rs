//! All fetch sessions of a node, with their eviction (KIP-227, `FetchSessionCache`).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

use super::session::{Session, SessionPartitions};

const EVICTION_AGE_MS: i64 = 120_000;

/// Returns random numbers, for the ids of sessions.
pub type DrawId = Box<dyn FnMut() -> u64 + Send>;

/// What a leader checks in a session. A simulation leaves one out, and must notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRule {
    /// A request has the epoch that follows that of the last one: no other request was lost, or arrives again.
    CheckEpoch,
    /// The session forgets the partitions that a request names for it.
    Forget,
}

/// What a cache of sessions is created with.
pub struct SessionOptions {
    /// The largest number of sessions.
    pub slots: usize,
    /// A session that was unused for this long may be evicted for any other; one that has existed for longer, for a larger one.
    pub eviction_age_ms: i64,
    pub draw_id: DrawId,
    pub without: Option<SessionRule>,
}

/// The session cache.
pub struct Sessions {
    slots: usize,
    eviction_age_ms: i64,
    without: Option<SessionRule>,
    inner: Mutex<Inner>,
}

struct Inner {
    sessions: BTreeMap<i32, Entry>,
    /// Least recently used first.
    by_use: BTreeSet<(i64, i32)>,
    draw_id: DrawId,
}

struct Entry {
    session: Arc<Mutex<Session>>,
    privileged: bool,
    partition_count: usize,
    created_ms: i64,
    used_ms: i64,
}

/// The priority of a session for eviction: followers before consumers, then by number of partitions.
type Worth = (bool, usize);

impl SessionOptions {
    /// Those of a node with this many slots. Clients cannot guess the ids of other sessions.
    pub fn with_slots(slots: usize) -> Self {
        let (random, mut drawn) = (RandomState::new(), 0_u64);
        let draw_id = move || {
            drawn += 1;
            random.hash_one(drawn)
        };
        Self { slots, eviction_age_ms: EVICTION_AGE_MS, draw_id: Box::new(draw_id), without: None }
    }
}

impl Sessions {
    pub fn new(options: SessionOptions) -> Self {
        let SessionOptions { slots, eviction_age_ms, draw_id, without } = options;
        let inner = Inner { sessions: BTreeMap::new(), by_use: BTreeSet::new(), draw_id };
        Self { slots, eviction_age_ms, without, inner: Mutex::new(inner) }
    }

    /// Whether the product's rule holds here.
    pub fn keeps(&self, rule: SessionRule) -> bool {
        self.without != Some(rule)
    }

    pub fn get(&self, id: i32) -> Option<Arc<Mutex<Session>>> {
        self.inner.lock().sessions.get(&id).map(|entry| entry.session.clone())
    }

    pub fn remove(&self, id: i32) -> bool {
        // Its partitions are notified after this lock is released.
        let removed = self.inner.lock().remove(id);
        removed.is_some()
    }

    /// Opens a session; 0 if there is no room for it.
    pub fn create(&self, now_ms: i64, privileged: bool, uses_topic_ids: bool, partitions: SessionPartitions) -> i32 {
        let mut inner = self.inner.lock();
        let worth = (privileged, partitions.len());
        let mut evicted = None;
        if inner.sessions.len() >= self.slots {
            evicted = inner.evict_for(now_ms, self.eviction_age_ms, worth);
            if evicted.is_none() {
                return 0;
            }
        }
        let id = inner.draw_id();
        let partition_count = partitions.len();
        let session = Arc::new(Mutex::new(Session::new(id, uses_topic_ids, partitions)));
        let entry = Entry { session, privileged, partition_count, created_ms: now_ms, used_ms: now_ms };
        inner.sessions.insert(id, entry);
        inner.by_use.insert((now_ms, id));
        drop(inner);
        drop(evicted);
        id
    }

    /// Records a use of the session, and its current number of partitions.
    pub fn touch(&self, now_ms: i64, id: i32, partition_count: usize) {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.sessions.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.used_ms, now_ms);
        entry.partition_count = partition_count;
        inner.by_use.remove(&(before, id));
        inner.by_use.insert((now_ms, id));
    }
}

impl Inner {
    fn remove(&mut self, id: i32) -> Option<Entry> {
        let entry = self.sessions.remove(&id)?;
        self.by_use.remove(&(entry.used_ms, id));
        Some(entry)
    }

    /// Makes room for a session with this priority; `None` if no other has a lower one.
    fn evict_for(&mut self, now_ms: i64, age_ms: i64, worth: Worth) -> Option<Entry> {
        let &(used_ms, oldest) = self.by_use.first()?;
        if now_ms - used_ms > age_ms {
            return self.remove(oldest);
        }
        let is_old = |entry: &Entry| now_ms - entry.created_ms > age_ms;
        // A new session is not evicted, except that a follower may evict any consumer's.
        let is_evictable = |entry: &Entry| is_old(entry) || (worth.0 && !entry.privileged);
        let least = self.sessions.iter().filter(|(_, entry)| is_evictable(entry));
        match least.map(|(id, entry)| (entry.worth(), *id)).min() {
            Some((least, id)) if least < worth => self.remove(id),
            _ => None,
        }
    }

    /// A positive unused number.
    fn draw_id(&mut self) -> i32 {
        loop {
            let id = ((self.draw_id)() >> 33) as i32;
            if id != 0 && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }
}

impl Entry {
    fn worth(&self) -> Worth {
        (self.privileged, self.partition_count)
    }
}

#[cfg(test)]
mod tests {
    use klamm_base::Uuid;
    use klamm_replica::{CONSUMER, PartitionFetch, Quiet};
    use klamm_wire::fetch::FetchPartition;

    use super::*;
    use crate::backend::Backend;
    use crate::session::{TopicKey, Wanted};
    use crate::testing::{FakeBackend, NAMED};

    fn partitions(count: usize) -> SessionPartitions {
        let mut partitions = SessionPartitions::default();
        for index in 0..count as i32 {
            let partition = FetchPartition {
                index,
                current_leader_epoch: -1,
                fetch_offset: 0,
                last_fetched_epoch: -1,
                log_start_offset: -1,
                max_bytes: 1,
                replica_directory: Uuid::ZERO,
                high_watermark: i64::MAX,
            };
            partitions.want(Wanted { topic: TopicKey::Id(Uuid::ZERO), partition });
        }
        partitions
    }

    const SECOND_MS: i64 = 1000;

    fn with_slots(slots: usize) -> Sessions {
        Sessions::new(SessionOptions::with_slots(slots))
    }

    /// One slot is occupied by (privileged, partitions) for `age` seconds, last used `idle` seconds ago.
    #[test]
    fn sessions_are_evicted_by_priority() {
        let table = [
            // age, idle, existing, new, whether it is evicted
            (10, 10, (false, 2), (false, 9), false),
            (121, 10, (false, 2), (false, 2), false),
            (121, 10, (false, 2), (false, 3), true),
            (121, 10, (false, 2), (false, 1), false),
            (121, 121, (false, 2), (false, 1), true),
            (121, 121, (true, 9), (false, 1), true),
            (10, 10, (false, 9), (true, 1), true),
            (10, 10, (true, 1), (true, 9), false),
            (121, 10, (true, 2), (true, 3), true),
            (121, 10, (true, 1), (false, 9), false),
        ];
        for (age, idle, holder, comer, makes_room) in table {
            let sessions = with_slots(1);
            let id = sessions.create(0, holder.0, true, partitions(holder.1));
            sessions.touch(SECOND_MS * (age - idle), id, holder.1);
            let other = sessions.create(SECOND_MS * age, comer.0, true, partitions(comer.1));
            assert_eq!(other != 0, makes_room, "{age} {idle} {holder:?} {comer:?}");
            assert_eq!(sessions.get(id).is_none(), makes_room);
        }
    }

    /// A session's quiet partition, and its number of entries for the session.
    fn quiet(backend: &FakeBackend) -> SessionPartitions {
        let mut partitions = partitions(1);
        let on = backend.partition(NAMED, 0).expect("a leader");
        let number = partitions.due()[0];
        let (_, entry) = partitions.visit(number);
        let quiet = Some(Quiet { entry: &entry, high_watermark: 0, log_start_offset: 0 });
        let request = PartitionFetch {
            fetch_offset: 0,
            max_bytes: 1,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            read_committed: false,
            replica_id: CONSUMER,
            client_rack: None,
            replica_epoch: -1,
            log_start_offset: -1,
            is_first_look: true,
            at_least_one: true,
            quiet,
        };
        assert!(on.fetch(&request).is_quiet);
        partitions.become_quiet(number, &on);
        assert_eq!((partitions.due(), backend.at(NAMED, 0).quiet_count()), (vec![], 1));
        partitions
    }

    #[test]
    fn quiet_partitions_lose_their_entries_with_the_session() {
        let backend = FakeBackend::new();
        let ends: [fn(&Sessions, i32); 3] = [
            |sessions, id| assert!(sessions.remove(id)),
            // A follower's session replaces a consumer's.
            |sessions, _| assert!(sessions.create(0, true, true, partitions(1)) > 0),
            |sessions, id| {
                let session = sessions.get(id).expect("open");
                session.lock().partitions.forget(&TopicKey::Id(Uuid::ZERO), 0);
            },
        ];
        for (at, end) in ends.into_iter().enumerate() {
            let sessions = with_slots(1);
            let id = sessions.create(0, false, true, quiet(&backend));
            end(&sessions, id);
            assert_eq!(backend.at(NAMED, 0).quiet_count(), 0, "{at}");
        }
        let sessions = with_slots(1);
        sessions.create(0, false, true, quiet(&backend));
        drop(sessions);
        assert_eq!(backend.at(NAMED, 0).quiet_count(), 0);
    }

    #[test]
    fn a_change_noticed_by_an_earlier_entry_is_none() {
        let backend = FakeBackend::new();
        let mut partitions = quiet(&backend);
        let only = 1;
        let (_, stale) = partitions.visit(only);
        partitions.visit(only);
        stale.notify();
        assert!(partitions.due().is_empty());
    }

    #[test]
    fn without_slots_there_are_no_sessions() {
        let sessions = with_slots(0);
        assert_eq!(sessions.create(0, true, true, partitions(1)), 0);
    }

    #[test]
    fn ids_are_positive_and_removal_frees_the_slot() {
        let sessions = with_slots(100);
        let ids: Vec<_> = (0..100).map(|_| sessions.create(0, false, true, partitions(1))).collect();
        assert!(ids.iter().all(|&id| id > 0));
        assert_eq!(sessions.create(0, false, true, partitions(1)), 0);
        assert!(sessions.remove(ids[3]) && !sessions.remove(ids[3]));
        assert!(sessions.create(0, false, true, partitions(1)) > 0);
    }
}
