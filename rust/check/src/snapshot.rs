//! Checks files of framed batches: metadata snapshots and `bootstrap.checkpoint`.

use std::path::Path;

use klamm_base::LogError;
use klamm_log::damage::{Bounds, Piece, Pieces};
use klamm_log::files::FileCache;
use klamm_records::header::Header;

use super::{Finding, unreadable};

const BOOTSTRAP: &str = "bootstrap.checkpoint";
const OF_SNAPSHOT: &str = "a start that needs it refuses";
const OF_BOOTSTRAP: &str = "only the first start of a formatted node needs it";

/// The finding on a metadata snapshot, or on `bootstrap.checkpoint`, which has no footer.
pub fn check_snapshot(path: &Path) -> Option<Finding> {
    match look(path) {
        Ok(found) => found,
        Err(error) => Some(unreadable(path, &error)),
    }
}

fn look(path: &Path) -> Result<Option<Finding>, LogError> {
    let is_bootstrap = path.file_name().is_some_and(|name| name == BOOTSTRAP);
    let action = if is_bootstrap { OF_BOOTSTRAP } else { OF_SNAPSHOT };
    let file = FileCache::new(8).open_read_only(path)?;
    let size = file.size()?;
    let mut pieces = Pieces::new(&file, 0, size, Bounds::default());
    // A footer is a control record.
    let mut is_whole = false;
    while let Some(piece) = pieces.next_piece()? {
        match piece {
            Piece::Batch(_, bytes) => {
                is_whole = is_bootstrap || Header::at_start_of(bytes).is_some_and(|header| header.is_control());
            }
            Piece::Damage(damage) => {
                return Ok(Some(Finding::damaged(path, damage.reason, action).at(damage.position)));
            }
        }
    }
    Ok((!is_whole).then(|| Finding::damaged(path, "it ends before its last record", action).at(size)))
}
