//! Compaction, which cleaner threads do in the product.

use klamm_base::Uuid;
use klamm_log::CleanerConfig;
use klamm_log::recorder::Change;

use super::broker::{SimulatedBroker, SimulationError};
use super::guard::Guard;

const MEMORY_BYTES: usize = 1 << 16;

impl SimulatedBroker {
    /// Cleans each compacted log that is due. Returns the partitions whose logs have changed.
    pub fn clean(&mut self, now_ms: i64) -> Result<Vec<(Uuid, i32)>, SimulationError> {
        self.clock.set(now_ms);
        self.disk.settle();
        let cleaned = self.clean_all(now_ms)?;
        if self.options.without == Some(Guard::SyncCleaned) {
            self.disk.settle_but(|change| matches!(change, Change::Sync { .. }));
        } else {
            self.disk.settle();
        }
        self.check(Vec::new())?;
        Ok(cleaned)
    }

    /// The machine loses power while it cleans: `seed` decides when, and what survives of that which was not synced.
    pub fn cut_power_while_cleaning(&mut self, seed: u64, now_ms: i64) -> Result<(), SimulationError> {
        self.clock.set(now_ms);
        self.disk.settle();
        self.clean_all(now_ms)?;
        let changes = self.disk.take_changes();
        self.end_process()?;
        Ok(self.disk.cut_power_within(&changes, seed)?)
    }

    fn clean_all(&mut self, now_ms: i64) -> Result<Vec<(Uuid, i32)>, SimulationError> {
        let config = CleanerConfig {
            dedupe_buffer_bytes: MEMORY_BYTES,
            io_buffer_bytes: MEMORY_BYTES,
            ..CleanerConfig::default()
        };
        let cleans_uncommitted = self.options.without == Some(Guard::CleanCommitted);
        let replicas = &self.life()?.replicas;
        let mut opened = replicas.opened();
        opened.sort_by_key(|partition| partition.key());
        let mut cleaned = Vec::new();
        for partition in opened {
            let high_watermark = if cleans_uncommitted { i64::MAX } else { partition.standing().high_watermark };
            let key = (partition.id.topic.to_string(), partition.id.index);
            if replicas.logs().clean_one(&key, &config, high_watermark, now_ms)? {
                cleaned.push(partition.key());
            }
        }
        Ok(cleaned)
    }
}
