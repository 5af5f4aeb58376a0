//! Records that klamm alone has written to a log directory since everything in it was flushed.
//!
//! A recovery then knows how the segments above the recovery points were rolled and cleaned. Apache Kafka does not know
//! the file. Its start removes the mark of the clean shutdown, but not klamm's record of its clean stop.

use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;

use super::clean_stop::CLEAN_STOP;
use super::files::FileCache;

/// Name of the file in a log directory.
pub const SOLE_WRITER: &str = "klamm-sole-writer";

/// Whether it is recorded. `clean`: the last shutdown was clean.
pub(super) fn is_noted(dir: &Path, clean: bool) -> bool {
    let was_started_since = !clean && dir.join(CLEAN_STOP).exists();
    dir.join(SOLE_WRITER).exists() && !was_started_since
}

/// Records it, durably.
pub(super) fn note(cache: &Arc<FileCache>, dir: &Path) -> Result<(), LogError> {
    cache.replace(&dir.join(SOLE_WRITER), b"", true)
}
