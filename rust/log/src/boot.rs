//! Whether the machine kept its power since the directory was last used.
//!
//! A process that is killed loses nothing that it has written; a power cut may lose or tear what was not synced. The two leave
//! the same folder, but not the same boot of the machine. What the file says is only believed when it is this boot's id, so
//! it is never synced.

use std::fs;
use std::path::Path;

use klamm_base::LogError;

/// Name of the file in a log directory.
pub const BOOT_ID: &str = "klamm-boot-id";

/// Linux's id of the running boot.
const RUNNING: &str = "/proc/sys/kernel/random/boot_id";

fn running() -> Option<Vec<u8>> {
    fs::read(RUNNING).ok().filter(|id| !id.is_empty())
}

/// Whether the last node of klamm in this directory ran since the machine was started.
pub(super) fn is_kept(dir: &Path) -> bool {
    let last = fs::read(dir.join(BOOT_ID)).ok();
    last.is_some() && last == running()
}

/// Notes that a node of klamm runs now.
pub(super) fn note(dir: &Path) -> Result<(), LogError> {
    match running() {
        Some(id) if !is_kept(dir) => {
            let path = dir.join(BOOT_ID);
            fs::write(&path, id).map_err(LogError::io("cannot write", &path))
        }
        _ => Ok(()),
    }
}
