//! The clean stop of the log directories: closes every log, then writes the clean-stop record.

use std::sync::Arc;

use klamm_base::LogError;
use parking_lot::Mutex;

use super::checkpoint::write_clean_shutdown;
use super::config::LogConfig;
use super::flush::FlushJob;
use super::flusher::sync_together;
use super::found::LogOnDisk;
use super::manager::{Event, LogManager};
use super::owner::{LogOwner, with_log};

impl LogManager {
    /// Recovers the logs that were not opened since a crash, so that the following stop is clean. Logs that were
    /// closed cleanly are skipped; errors are reported to the directory.
    pub fn recover_the_rest(&self, config: impl Fn(&LogOnDisk) -> Arc<LogConfig> + Sync, now_ms: i64) {
        let mut found = self.found();
        found.retain(|found| !self.dirs[found.dir].was_shut_down_cleanly());
        self.open_all(&found, config, now_ms, |found, opened| {
            let Ok((mut log, _)) = opened else { return };
            if self.fail_dir_on_error(found.dir, log.close()).is_ok() {
                self.dirs[found.dir].note_closed(found, &log);
            }
        });
    }

    /// Closes every log and marks the directories as cleanly shut down. The owners accept no more appends at this
    /// point.
    pub fn shutdown(&self, broker_epoch: i64) {
        self.stop_threads();
        let dirs: Vec<Vec<usize>> = self.online().map(|(at, _)| vec![at]).collect();
        self.in_parallel(&dirs, |&at| {
            if let Err(error) = self.fail_dir_on_error(at, self.close_dir(at, broker_epoch)) {
                (self.on_event)(Event::Warning(format!("a log directory was not closed cleanly: {error}")));
            }
        });
        self.dirs.iter().for_each(|dir| dir.release());
    }

    /// Ends as a process that is killed does: nothing is written, and the directories are free for the next user.
    pub fn abandon(&self) {
        self.stop_threads();
        self.dirs.iter().for_each(|dir| dir.release());
    }

    fn close_dir(&self, at: usize, broker_epoch: i64) -> Result<(), LogError> {
        let dir = &self.dirs[at];
        let (owners, closing) = (dir.owners(), Mutex::new(Vec::new()));
        let owners: Vec<Vec<&Arc<dyn LogOwner>>> = vec![owners.iter().map(|(_, owner)| owner).collect()];
        self.in_parallel(&owners, |&owner| {
            let begun = with_log(&**owner, |log| {
                let job = log.begin_close()?;
                job.as_ref().map_or(Ok(()), FlushJob::write)?;
                Ok(job)
            });
            closing.lock().push((owner, begun));
        });
        let mut jobs = Vec::new();
        for (owner, begun) in closing.into_inner() {
            jobs.extend(begun?.map(|job| (owner, job)));
        }
        let synced = sync_together(jobs.iter().map(|(_, job)| job))?;
        for (owner, job) in &jobs {
            if !synced {
                job.sync()?;
            }
            with_log(&***owner, |log| log.end_close(Some(job.end())));
        }
        dir.checkpoint_all(&self.context.cache)?;
        // A log that was not recovered since a crash still needs recovery.
        if dir.with_inventory(|inventory| inventory.is_settled()) {
            let clean_stop = dir.clean_stop().write(&self.context.cache, dir.path())?;
            write_clean_shutdown(&self.context.cache, dir.path(), broker_epoch, clean_stop)?;
        }
        Ok(())
    }
}
