//! Whether the machine kept its power since the directory was last used.
//!
//! A process that is killed loses nothing that it has written; a power cut may lose or tear what was not synced. The two leave
//! the same folder, but not the same boot of the machine. What the file says is only believed when it is this boot's id, so
//! it is never synced.

use std::fs;
use std::path::Path;

use super::error::LogError;

/// Name of the file in a log directory.
pub const BOOT_ID: &str = "klamm-boot-id";

/// Linux's id of the running boot.
const RUNNING: &str = "/proc/sys/kernel/random/boot_id";

/// Whether the last node of klamm in this directory ran since the machine was started; notes that one runs now.
pub(super) fn note(dir: &Path) -> Result<bool, LogError> {
    let Some(running) = fs::read(RUNNING).ok().filter(|id| !id.is_empty()) else { return Ok(false) };
    let path = dir.join(BOOT_ID);
    if fs::read(&path).is_ok_and(|last| last == running) {
        return Ok(true);
    }
    fs::write(&path, running).map_err(LogError::io("cannot write", &path))?;
    Ok(false)
}
