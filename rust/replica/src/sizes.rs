//! The size and directory of each partition, open or not, for DescribeLogDirs.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use klamm_log::{Key, LogOwner, with_log};

use super::replicas::Replicas;

/// Topic, partition, bytes of batches, the offsets by which it lags, and whether it is a copy that is to replace the
/// partition's log.
pub type Size = (String, i32, u64, i64, bool);

impl Replicas {
    /// The partitions of each directory. A partition that was never written has size 0 and the directory where its
    /// files would be created. Offline directories have none.
    pub fn sizes(&self) -> Vec<Vec<Size>> {
        let dirs = self.logs().dirs();
        let row = |((topic, index), owner): (Key, Arc<dyn LogOwner>)| {
            let (size, end) = with_log(&*owner, |log| (log.size(), log.log_end_offset()));
            let lag = match owner.is_future() {
                true => {
                    self.logs().owner_of(&topic, index).map_or(0, |log| with_log(&*log, |log| log.log_end_offset()))
                        - end
                }
                false => owner.high_watermark() - end,
            };
            (topic, index, size, lag.max(0), owner.is_future())
        };
        let mut rows: Vec<Vec<Size>> = dirs.iter().map(|dir| dir.owners().into_iter().map(row).collect()).collect();
        let waiting: Vec<_> = self.on_disk.lock().values().cloned().collect();
        for found in waiting.iter().filter(|found| dirs[found.dir].offline_cause().is_none()) {
            rows[found.dir].push((found.topic.clone(), found.partition, bytes_of_logs(&found.path), 0, false));
        }
        let mut known: HashSet<_> = rows.iter().flatten().map(|(topic, index, ..)| (topic.clone(), *index)).collect();
        // Partitions of an offline directory are in no other.
        known.extend(waiting.into_iter().map(|found| (found.topic, found.partition)));
        known.extend(self.opened().iter().map(|open| (open.id.topic.to_string(), open.id.index)));
        for (dir, size) in self.never_written(&known) {
            rows[dir].push(size);
        }
        rows
    }

    fn never_written(&self, known: &HashSet<(String, i32)>) -> Vec<(usize, Size)> {
        let image = self.image();
        let mut found = Vec::new();
        for topic in image.topics().iter() {
            for (index, record) in topic.partitions().filter(|(_, record)| record.replicas().contains(&self.node_id)) {
                let name = (topic.name().to_string(), index);
                if !known.contains(&name)
                    && let Ok(dir) = self.dir_for(&image, (topic.id(), index), record)
                    && self.logs().dirs()[dir].offline_cause().is_none()
                {
                    found.push((dir, (name.0, index, 0, 0, false)));
                }
            }
        }
        found
    }
}

/// Bytes of the segments in a partition's directory; files that cannot be read count as 0.
fn bytes_of_logs(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let logs = entries.flatten().filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log"));
    logs.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}
