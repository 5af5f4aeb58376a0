//! All fetch sessions of a node, with their eviction (KIP-227, `FetchSessionCache`).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::session::{Session, SessionPartitions};

/// A session that was unused for this long may be evicted for any other; one that has existed for longer, for a
/// larger one.
const EVICTION_AGE: Duration = Duration::from_millis(120_000);

/// The session cache.
pub struct Sessions {
    slots: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    sessions: BTreeMap<i32, Entry>,
    /// Least recently used first.
    by_use: BTreeSet<(Instant, i32)>,
    random: RandomState,
    drawn: u64,
}

struct Entry {
    session: Arc<Mutex<Session>>,
    privileged: bool,
    partition_count: usize,
    created: Instant,
    used: Instant,
}

/// The priority of a session for eviction: followers before consumers, then by number of partitions.
type Worth = (bool, usize);

impl Sessions {
    pub fn new(slots: usize) -> Self {
        Self { slots, inner: Mutex::default() }
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
    pub fn create(&self, now: Instant, privileged: bool, uses_topic_ids: bool, partitions: SessionPartitions) -> i32 {
        let mut inner = self.inner.lock();
        let worth = (privileged, partitions.len());
        let mut evicted = None;
        if inner.sessions.len() >= self.slots {
            evicted = inner.evict_for(now, worth);
            if evicted.is_none() {
                return 0;
            }
        }
        let id = inner.draw_id();
        let partition_count = partitions.len();
        let session = Arc::new(Mutex::new(Session::new(id, uses_topic_ids, partitions)));
        inner.sessions.insert(id, Entry { session, privileged, partition_count, created: now, used: now });
        inner.by_use.insert((now, id));
        drop(inner);
        drop(evicted);
        id
    }

    /// Records a use of the session, and its current number of partitions.
    pub fn touch(&self, now: Instant, id: i32, partition_count: usize) {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.sessions.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.used, now);
        entry.partition_count = partition_count;
        inner.by_use.remove(&(before, id));
        inner.by_use.insert((now, id));
    }
}

impl Inner {
    fn remove(&mut self, id: i32) -> Option<Entry> {
        let entry = self.sessions.remove(&id)?;
        self.by_use.remove(&(entry.used, id));
        Some(entry)
    }

    /// Makes room for a session with this priority; `None` if no other has a lower one.
    fn evict_for(&mut self, now: Instant, worth: Worth) -> Option<Entry> {
        let &(used, oldest) = self.by_use.first()?;
        if now.duration_since(used) > EVICTION_AGE {
            return self.remove(oldest);
        }
        let least = self.sessions.iter().filter(|(_, entry)| entry.is_evictable(now, worth.0));
        match least.map(|(id, entry)| (entry.worth(), *id)).min() {
            Some((least, id)) if least < worth => self.remove(id),
            _ => None,
        }
    }

    /// A random positive unused number, so that clients cannot guess the ids of other sessions.
    fn draw_id(&mut self) -> i32 {
        loop {
            self.drawn += 1;
            let id = (self.random.hash_one(self.drawn) >> 33) as i32;
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

    /// A new session is not evicted, except that a follower may evict any consumer's.
    fn is_evictable(&self, now: Instant, by_privileged: bool) -> bool {
        now.duration_since(self.created) > EVICTION_AGE || (by_privileged && !self.privileged)
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

    const SECOND: Duration = Duration::from_secs(1);

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
            let sessions = Sessions::new(1);
            let start = Instant::now();
            let id = sessions.create(start, holder.0, true, partitions(holder.1));
            sessions.touch(start + SECOND * (age - idle), id, holder.1);
            let other = sessions.create(start + SECOND * age, comer.0, true, partitions(comer.1));
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
        let (backend, now) = (FakeBackend::new(), Instant::now());
        let ends: [fn(&Sessions, i32); 3] = [
            |sessions, id| assert!(sessions.remove(id)),
            // A follower's session replaces a consumer's.
            |sessions, _| assert!(sessions.create(Instant::now(), true, true, partitions(1)) > 0),
            |sessions, id| {
                let session = sessions.get(id).expect("open");
                session.lock().partitions.forget(&TopicKey::Id(Uuid::ZERO), 0);
            },
        ];
        for (at, end) in ends.into_iter().enumerate() {
            let sessions = Sessions::new(1);
            let id = sessions.create(now, false, true, quiet(&backend));
            end(&sessions, id);
            assert_eq!(backend.at(NAMED, 0).quiet_count(), 0, "{at}");
        }
        let sessions = Sessions::new(1);
        sessions.create(now, false, true, quiet(&backend));
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
        let sessions = Sessions::new(0);
        assert_eq!(sessions.create(Instant::now(), true, true, partitions(1)), 0);
    }

    #[test]
    fn ids_are_positive_and_removal_frees_the_slot() {
        let sessions = Sessions::new(100);
        let now = Instant::now();
        let ids: Vec<_> = (0..100).map(|_| sessions.create(now, false, true, partitions(1))).collect();
        assert!(ids.iter().all(|&id| id > 0));
        assert_eq!(sessions.create(now, false, true, partitions(1)), 0);
        assert!(sessions.remove(ids[3]) && !sessions.remove(ids[3]));
        assert!(sessions.create(now, false, true, partitions(1)) > 0);
    }
}
