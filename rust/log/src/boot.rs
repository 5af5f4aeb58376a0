//! Detects whether the machine rebooted since the directory was last used.
//!
//! A killed process loses nothing that it has written; a power cut may lose or tear what was not synced. The two
//! leave the same folder, but the machine's boot id differs. The file counts only if it contains the id of the
//! current boot, so it is never synced.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;

use super::files::FileCache;

/// Name of the file in a log directory.
pub const BOOT_ID: &str = "klamm-boot-id";

/// Linux's id of the running boot.
const RUNNING: &str = "/proc/sys/kernel/random/boot_id";

fn running() -> Option<Vec<u8>> {
    fs::read(RUNNING).ok().filter(|id| !id.is_empty())
}

/// Whether the machine has not rebooted since klamm last ran in this directory.
pub(super) fn is_kept(dir: &Path) -> bool {
    let last = fs::read(dir.join(BOOT_ID)).ok();
    last.is_some() && last == running()
}

/// Records that klamm runs in this boot.
pub(super) fn note(cache: &Arc<FileCache>, dir: &Path) -> Result<(), LogError> {
    match running() {
        Some(id) if !is_kept(dir) => cache.write_whole(&dir.join(BOOT_ID), &id, false),
        _ => Ok(()),
    }
}
