//! Ends and starts of a node.

use tempfile::TempDir;

use super::End;
use super::expected::Promise;
use super::history::{History, NOW_MS, config_of};
use super::judge::{self, Allowed};
use super::node::Node;
use crate::LogOnDisk;
use crate::crash::{Disk, Rng};
use crate::log_dir::Key;
use crate::with_log;

fn key_of(found: &LogOnDisk) -> Key {
    (found.topic.clone(), found.partition)
}

impl History {
    /// Kills or stops the node and starts it again; some logs are opened.
    pub fn restart(&mut self, is_clean: bool, rng: &mut Rng) {
        self.restart_unopened(is_clean, is_clean && rng.one_in(2));
        for key in self.now.logs.keys().cloned().collect::<Vec<_>>() {
            if rng.below(3) > 0 {
                self.open(&key, rng);
            }
        }
    }

    /// The same without opening a log. `recovers`: a stop recovers the logs that are not open.
    pub fn restart_unopened(&mut self, is_clean: bool, recovers: bool) {
        let mut node = self.node.take().expect("it runs");
        let opened = std::mem::take(&mut node.owners);
        self.take_changes(false);
        match is_clean {
            true => {
                if recovers {
                    node.manager.recover_the_rest(|found| config_of(&key_of(found)), NOW_MS);
                }
                node.stop();
            }
            false => node.kill(),
        }
        self.take_changes(true);
        // What was never written is not on disk.
        self.now.logs.retain(|key, expected| !(opened.contains_key(key) && expected.is_planned()));
        if is_clean {
            for (key, expected) in self.now.logs.iter_mut().filter(|(key, _)| opened.contains_key(key)) {
                let flushed = with_log(&*opened[key], |log| log.flushed_offset());
                expected.on_flushed(flushed);
            }
        }
        drop(opened);
        self.promise();
        self.node = Some(Node::start(self.root(), self.recorder.clone()));
        self.promise();
    }

    /// Opens a log that the node found; it is as it was.
    pub fn open(&mut self, key: &Key, rng: &mut Rng) {
        let expected = self.expected(key).clone();
        let promise = Promise { logs: [(key.clone(), expected)].into(), ..Promise::default() };
        let allowed = Allowed { before: &promise, after: None, end: End::Kill };
        self.open_judged(key, &allowed, rng.below(3) > 0);
    }

    pub fn open_and_flush(&mut self, key: &Key) {
        self.open(key, &mut Rng::new(1));
        self.flush(key);
    }

    /// Opens a log and judges it; what is found is expected from now on.
    fn open_judged(&mut self, key: &Key, allowed: &Allowed<'_>, flushes: bool) {
        let manager = self.node().manager.clone();
        let found = manager.found().into_iter().find(|found| key_of(found) == *key);
        let found = found.unwrap_or_else(|| panic!("{key:?} is lost"));
        let (mut log, recovery) = manager.open(&found, config_of(key), NOW_MS).expect("open");
        let warnings = self.node().take_warnings();
        allowed.check_recovery(key, &recovery, &warnings);
        let mut expected = allowed.check_log(key, &mut log, found.dir);
        if allowed.end == End::PowerCut {
            // Everything that is found is durable.
            expected.on_flushed(expected.flushed);
        }
        if flushes {
            let flushed = log.flush().expect("flush");
            expected.on_flushed(flushed);
        }
        let checkpointed = manager.checkpointed_high_watermark(&found);
        expected.high_watermark = checkpointed.min(expected.end);
        self.node().adopt(found.dir, key, log, expected.high_watermark);
        self.now.logs.insert(key.clone(), expected);
    }

    /// Starts a node in `dir` on what another one left on `disk`, and checks it.
    pub fn after(dir: TempDir, other: &History, disk: &Disk, end: End, rng: &mut Rng) -> Self {
        let cut = disk.played() - other.base;
        let mut history = match end {
            // What was not synced may still be lost.
            End::Kill => {
                let disk = disk.at(other.root(), dir.path());
                Self::over(dir, disk)
            }
            End::PowerCut => Self::of(dir),
        };
        let next = other.promises.partition_point(|(from, _)| *from <= cut);
        let nothing = Promise::default();
        let before = next.checked_sub(1).map_or(&nothing, |at| &other.promises[at].1);
        let after = other.promises.get(next).map(|(_, promise)| promise);
        let allowed = Allowed { before, after, end };
        judge::examine(history.root(), &allowed);
        history.start_after(&allowed);
        history.promise();
        // Some logs wait until the node has started once more.
        if rng.one_in(2) {
            history.open_some(&allowed, 2, rng);
            history.again(rng);
        }
        history.open_some(&allowed, 0, rng);
        for key in history.node().owners.keys().cloned().collect::<Vec<_>>() {
            history.begin_epoch(&key, rng);
            history.append_as_leader(&key, rng);
            if rng.one_in(2) {
                history.flush(&key);
            }
        }
        history.promise();
        if rng.one_in(2) {
            history.restart(rng.one_in(2), rng);
            history.promise();
        }
        history.take_changes(false);
        history.first = history.changes.len();
        history
    }

    fn start_after(&mut self, allowed: &Allowed<'_>) {
        self.node = Some(Node::start(self.root(), self.recorder.clone()));
        let warnings = self.node().take_warnings();
        assert!(warnings.is_empty(), "{warnings:?}");
        let manager = self.node().manager.clone();
        self.now.deleted = allowed.deleted();
        let found = manager.found();
        for found in &found {
            if !allowed.is_wanted(&manager, found) {
                manager.delete(&found.topic, found.partition, NOW_MS).expect("delete");
            }
        }
        self.node().empty_trash();
        allowed.check_found(&manager.found());
    }

    /// Opens the logs that wait, except for one in `but`.
    fn open_some(&mut self, allowed: &Allowed<'_>, but: u64, rng: &mut Rng) {
        for found in self.node().manager.found() {
            let key = key_of(&found);
            if self.now.logs.contains_key(&key) {
                self.open(&key, rng);
            } else if but == 0 || !rng.one_in(but) {
                self.open_judged(&key, allowed, rng.below(3) > 0);
            }
        }
    }

    /// Ends the node while logs wait to be opened, and starts it again.
    fn again(&mut self, rng: &mut Rng) {
        let waiting: Vec<LogOnDisk> = self.node().manager.found();
        self.restart_only(rng);
        let found = self.node().manager.found();
        assert!(waiting.iter().all(|waiting| found.contains(waiting)), "a log is lost by a restart");
    }

    fn restart_only(&mut self, rng: &mut Rng) {
        let mut node = self.node.take().expect("it runs");
        drop(std::mem::take(&mut node.owners));
        self.take_changes(false);
        if rng.one_in(2) {
            node.kill()
        } else {
            node.stop()
        }
        self.take_changes(true);
        self.node = Some(Node::start(self.root(), self.recorder.clone()));
        let warnings = self.node().take_warnings();
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}
