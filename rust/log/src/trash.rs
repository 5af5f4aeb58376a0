//! Files and directories that are removed after a delay.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use klamm_base::LogError;
use parking_lot::Mutex;

use super::files::{FileCache, LogFile};

enum Item {
    Files(Vec<Arc<LogFile>>),
    Dir(PathBuf),
}

/// Files that await removal; consumers that started reading earlier still find them.
#[derive(Default)]
pub struct Trash {
    items: Mutex<Vec<(i64, Item)>>,
}

impl Trash {
    pub fn push_files(&self, due_ms: i64, files: Vec<Arc<LogFile>>) {
        self.items.lock().push((due_ms, Item::Files(files)));
    }

    pub fn push_dir(&self, due_ms: i64, path: PathBuf) {
        self.items.lock().push((due_ms, Item::Dir(path)));
    }

    /// Removes what is due; returns the errors of what could not be removed.
    pub fn remove_due(&self, cache: &FileCache, now_ms: i64) -> Vec<LogError> {
        let due: Vec<Item> = {
            let mut items = self.items.lock();
            items.extract_if(.., |(due_ms, _)| *due_ms <= now_ms).map(|(_, item)| item).collect()
        };
        let mut errors = Vec::new();
        for item in due {
            match item {
                Item::Files(files) => errors.extend(files.iter().filter_map(|file| file.remove(cache).err())),
                Item::Dir(path) => match cache.remove_dir(&path) {
                    // A user that started earlier, such as the cleaner, created a file there: retry later.
                    Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => self.push_dir(now_ms, path),
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        errors.push(LogError::io("cannot remove", &path)(error));
                    }
                    _ => {}
                },
            }
        }
        errors
    }
}
