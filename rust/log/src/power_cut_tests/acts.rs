//! What a history does to the logs of a running node.

use klamm_base::Uuid;
use klamm_records::header::set_position;
use klamm_records::{BatchBuilder, BatchFields, Compression};

use super::expected::{Expected, epoch_of, offsets_of};
use super::history::{COMPACTED, History, NOW_MS, TOPICS, config_of, flushed_offset};
use crate::crash::Rng;
use crate::log_dir::Key;
use crate::testing::{BatchSpec, batch};
use crate::{CleanerConfig, LogOwner, Origin, with_log};

fn batch_for(key: &Key, rng: &mut Rng) -> Vec<u8> {
    if key.0 == COMPACTED {
        let (key, value) = ([rng.below(8) as u8], vec![b'v'; rng.below(600) as usize]);
        let mut builder = BatchBuilder::new(BatchFields::default(), Compression::NONE);
        builder.append(NOW_MS, Some(&key), Some(&value), &[]).expect("small");
        return builder.finish().expect("small");
    }
    let most = if key.0 == "prepared" { 30_000 } else { 600 };
    let value_bytes = rng.below(most) as usize;
    batch(&BatchSpec { records: 1 + rng.below(4) as i32, value_bytes: value_bytes / 4, ..BatchSpec::default() })
}

impl History {
    pub fn open_or_create(&mut self, rng: &mut Rng) {
        let waiting: Vec<Key> =
            self.node().manager.found().into_iter().map(|found| (found.topic, found.partition)).collect();
        if !waiting.is_empty() && rng.one_in(2) {
            return self.open(&waiting[rng.below(waiting.len() as u64) as usize], rng);
        }
        let key = (TOPICS[rng.below(TOPICS.len() as u64) as usize].to_owned(), 0);
        if !self.now.logs.contains_key(&key) {
            self.create(key, rng);
        }
    }

    pub fn create(&mut self, key: Key, rng: &mut Rng) {
        let (topic_id, dir) = (Uuid(std::array::from_fn(|_| rng.below(256) as u8)), rng.below(2) as usize);
        let log = self.node().manager.plan(dir, &key.0, key.1, topic_id, config_of(&key)).expect("plan");
        self.node().adopt(dir, &key, log, 0);
        self.now.logs.insert(key, Expected::new(topic_id, dir));
    }

    pub fn append_as_leader(&mut self, key: &Key, rng: &mut Rng) {
        let (mut bytes, epoch) = (batch_for(key, rng), self.expected(key).epoch);
        let owner = self.owner(key);
        with_log(&*owner, |log| log.append_as_leader(&mut bytes, epoch, NOW_MS, Origin::Client)).expect("append");
        self.expected(key).append(&bytes);
    }

    /// The same repeatedly, with a promise after each.
    pub fn append_many(&mut self, key: &Key, count: usize, rng: &mut Rng) {
        for _ in 0..count {
            self.append_as_leader(key, rng);
            self.promise();
        }
    }

    /// Appends batches of a leader, of this epoch and of earlier ones.
    pub fn append_as_follower(&mut self, key: &Key, rng: &mut Rng) {
        let latest = with_log(&*self.owner(key), |log| log.latest_epoch());
        let expected = self.expected(key);
        let mut epoch = expected.batches.last().map_or(0, |last| epoch_of(last));
        expected.void.extend(latest.filter(|&latest| latest > epoch));
        while expected.void.contains(&expected.epoch) {
            expected.epoch += 1;
        }
        let (mut next_offset, leader_epoch, void) = (expected.end, expected.epoch, expected.void.clone());
        let mut fetched = Vec::new();
        for _ in 0..1 + rng.below(3) {
            epoch += rng.below((leader_epoch - epoch + 1) as u64) as i32;
            while void.contains(&epoch) {
                epoch += 1;
            }
            let mut bytes = batch_for(key, rng);
            if key.0 == COMPACTED && rng.one_in(3) {
                next_offset += rng.below(20) as i64;
            }
            set_position(&mut bytes, next_offset, epoch);
            next_offset = offsets_of(&bytes).1;
            fetched.push(bytes);
        }
        if fetched.concat().len() > config_of(key).segment_bytes as usize {
            fetched.truncate(1);
        }
        let owner = self.owner(key);
        let appended = with_log(&*owner, |log| {
            // A follower first truncates to where its epochs and the leader's diverge: an epoch without records ends.
            log.truncate_to(log.log_end_offset(), NOW_MS).expect("truncate");
            log.append_as_follower(&fetched.concat(), leader_epoch, NOW_MS)
        });
        assert!(appended.expect("append").is_some());
        fetched.iter().for_each(|bytes| self.expected(key).append(bytes));
    }

    pub fn flush(&mut self, key: &Key) {
        let owner = self.owner(key);
        if !with_log(&*owner, |log| log.is_planned()) {
            let flushed = with_log(&*owner, |log| log.flush()).expect("flush");
            self.expected(key).on_flushed(flushed);
        }
    }

    /// Flushes while the log is changed.
    pub fn flush_meanwhile(&mut self, key: &Key, rng: &mut Rng) {
        let owner = self.owner(key);
        let Some(job) = owner.begin_flush() else { return };
        job.write().expect("write");
        if rng.one_in(2) {
            self.append_as_leader(key, rng);
        }
        let earlier = self.expected(key).earlier.len();
        job.sync().expect("sync");
        match rng.below(3) {
            0 => self.append_as_follower(key, rng),
            1 => self.truncate(key, rng),
            _ => {}
        }
        owner.complete_flush(job.end());
        let expected = self.expected(key);
        expected.flushed = flushed_offset(&owner);
        expected.is_durable = true;
        expected.earlier.drain(..earlier.min(expected.earlier.len()));
        job.prepare().expect("prepare");
    }

    /// A new leader epoch begins; this node may be its leader.
    pub fn begin_epoch(&mut self, key: &Key, rng: &mut Rng) {
        let expected = self.expected(key);
        expected.epoch += 1 + rng.below(2) as i32;
        let (epoch, end) = (expected.epoch, expected.end);
        if rng.one_in(2) {
            let owner = self.owner(key);
            with_log(&*owner, |log| {
                if !log.is_planned() {
                    log.assign_epoch(epoch, end);
                }
            });
        }
    }

    /// Truncates like a follower whose new leader lacks some records; rarely also below the high watermark, after an
    /// unclean election.
    pub fn truncate(&mut self, key: &Key, rng: &mut Rng) {
        let is_unclean = rng.one_in(4);
        let expected = self.expected(key);
        let least = if is_unclean { expected.start } else { expected.high_watermark.max(expected.start) };
        let places: Vec<i64> =
            expected.batches.iter().map(|batch| offsets_of(batch).0).filter(|&base| base >= least).collect();
        if places.is_empty() {
            return;
        }
        let mut to = places[rng.below(places.len() as u64) as usize];
        if key.0 == COMPACTED {
            // Where the leader's log diverges, it may have a gap.
            let before = expected.batches.iter().map(|batch| offsets_of(batch).1).rfind(|&end| end <= to);
            let before = before.unwrap_or(to).max(least);
            to -= rng.below((to - before).max(0) as u64 + 1) as i64;
        }
        self.truncate_to(key, to);
    }

    /// A round of cleaning, if one is due.
    pub fn clean(&mut self, key: &Key) {
        let (owner, expected) = (self.owner(key), self.expected(key));
        if key.0 != COMPACTED || expected.is_planned() {
            return;
        }
        let high_watermark = expected.high_watermark;
        expected.clean(high_watermark.min(with_log(&*owner, |log| log.active_base_offset())));
        self.promise();
        let config =
            CleanerConfig { dedupe_buffer_bytes: 1 << 16, io_buffer_bytes: 1 << 16, ..CleanerConfig::default() };
        self.node().manager.clone().clean_one(key, &config, high_watermark, NOW_MS).expect("clean");
    }

    /// Truncates to the batch of this number.
    pub fn truncate_at(&mut self, key: &Key, number: usize) {
        let to = offsets_of(&self.expected(key).batches[number]).0;
        self.truncate_to(key, to);
        self.promise();
    }

    fn truncate_to(&mut self, key: &Key, to: i64) {
        let expected = self.expected(key);
        // Once the truncation begins, nothing above it must survive.
        expected.truncate(to);
        let high_watermark = expected.high_watermark;
        self.promise();
        let (owner, manager, dir) = (self.owner(key), self.node().manager.clone(), self.expected(key).dir);
        let offsets = [(key.clone(), to)];
        manager.begin_truncation(dir, &offsets).expect("checkpoint");
        with_log(&*owner, |log| log.truncate_to(to, NOW_MS)).expect("truncate");
        owner.set_high_watermark(high_watermark);
        manager.end_truncation(&offsets).expect("checkpoint");
    }

    /// Continues within the log of a leader that begins above this one's end.
    pub fn start_again_empty(&mut self, key: &Key, rng: &mut Rng) {
        let expected = self.expected(key);
        if expected.is_planned() {
            return;
        }
        let offset = expected.end + 1 + rng.below(20) as i64;
        expected.truncate(0);
        (expected.start, expected.end, expected.flushed, expected.high_watermark) = (offset, offset, 0, offset);
        expected.start_max = offset;
        self.promise();
        let (owner, manager, dir) = (self.owner(key), self.node().manager.clone(), self.expected(key).dir);
        let offsets = [(key.clone(), 0)];
        manager.begin_truncation(dir, &offsets).expect("checkpoint");
        with_log(&*owner, |log| log.truncate_fully_and_start_at(offset, NOW_MS)).expect("truncate");
        owner.set_high_watermark(offset);
        manager.end_truncation(&offsets).expect("checkpoint");
        self.expected(key).earlier.clear();
    }

    /// DeleteRecords and a round of retention.
    pub fn delete_records(&mut self, key: &Key, rng: &mut Rng) {
        let owner = self.owner(key);
        let expected = self.expected(key);
        let high_watermark = expected.high_watermark;
        if high_watermark < expected.start {
            return;
        }
        let to = expected.start + rng.below((high_watermark - expected.start + 1) as u64) as i64;
        // Once the deletion begins, everything that retention may remove may be gone.
        expected.start = high_watermark;
        expected.start_max = expected.start_max.max(high_watermark);
        self.promise();
        let start = with_log(&*owner, |log| {
            log.advance_log_start(to);
            log.delete_expired(high_watermark, NOW_MS).expect("retention");
            log.log_start_offset()
        });
        self.expected(key).start = start;
    }

    pub fn checkpoint(&mut self, rng: &mut Rng) {
        let dir = self.node().manager.dirs()[rng.below(2) as usize].clone();
        let cache = self.node().cache().clone();
        let written = match rng.below(5) {
            0 => dir.mark().and_then(|()| dir.checkpoint_recovery_points(&cache)),
            1 => dir.checkpoint_recovery_points(&cache),
            2 => dir.checkpoint_rolled(&cache),
            3 => dir.checkpoint_log_starts(&cache),
            _ => dir.checkpoint_high_watermarks(&cache),
        };
        written.expect("checkpoint");
    }

    pub fn checkpoint_all(&mut self) {
        self.node().manager.checkpoint();
        self.promise();
    }

    pub fn advance_high_watermark(&mut self, key: &Key, rng: &mut Rng) {
        let expected = self.expected(key);
        let above = expected.flushed - expected.high_watermark;
        if above > 0 {
            expected.high_watermark += 1 + rng.below(above as u64) as i64;
            let high_watermark = expected.high_watermark;
            self.owner(key).set_high_watermark(high_watermark);
        }
    }

    /// Deletes a log, or sets it aside.
    pub fn delete(&mut self, key: &Key, rng: &mut Rng) {
        let expected = self.now.logs.remove(key).expect("it exists");
        self.now.deleted.insert(expected.topic_id);
        self.promise();
        self.node().owners.remove(key);
        let manager = self.node().manager.clone();
        if rng.one_in(3) {
            manager.set_aside(&key.0, key.1, "a test").expect("set aside");
            self.node().take_warnings();
        } else {
            manager.delete(&key.0, key.1, NOW_MS).expect("delete");
        }
    }
}
