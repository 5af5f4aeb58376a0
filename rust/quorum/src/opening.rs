//! How opening a metadata log handles the findings of its examination.

use std::path::Path;
use std::sync::Arc;

use klamm_base::LogError;
use klamm_log::Log;
use klamm_log::files::{FileCache, LogFile, PartitionDir};
use klamm_log::names::{FileName, Kind, Stage};
use klamm_metadata::checkpoint;
use klamm_records::control::ControlRecord;

use super::control::ControlEntry;
use super::examination::{Damage, Examination, Loss};
use super::reader::LogReader;
use super::snapshots::SnapshotId;

/// What to do if the log has lost records.
#[derive(Clone, Copy, Debug)]
pub enum OnLoss<'v> {
    /// Refuse to open it: no other replica has the records.
    Refuse,
    /// Continue with the intact part and remember the loss: the other voters have the records.
    Cut,
    /// Continue with the intact part and forget the rest: an operator accepted the loss.
    Accept,
    /// Refuse if this node is the only voter according to the intact part, otherwise cut. `static_voters`: those of
    /// the configuration.
    RefuseSoleVoter { node_id: i32, static_voters: &'v [i32] },
}

/// Decides whether the log may be opened; if so, returns the loss.
pub fn check(
    dir: &Path,
    examined: &Examination,
    on_loss: OnLoss<'_>,
    advice: Option<&str>,
) -> Result<Option<Loss>, LogError> {
    let is_sole_voter = match on_loss {
        OnLoss::Refuse => true,
        OnLoss::Cut | OnLoss::Accept => false,
        OnLoss::RefuseSoleVoter { node_id, static_voters } => {
            // Determining the voters costs a pass over the log, so only do so if it matters.
            examined.loss(true).is_some() && is_sole_voter(dir, examined, node_id, static_voters)?
        }
    };
    let loss = examined.loss(is_sole_voter);
    match loss {
        Some(loss) if is_sole_voter => Err(refused(dir, &loss, advice)),
        loss => {
            check_start(dir, examined, is_sole_voter, advice)?;
            check_snapshots(dir, examined, advice)?;
            Ok(loss)
        }
    }
}

/// Why the log must not be opened even if other replicas have its records; `None` if it may be.
pub fn refusal(dir: &Path, examined: &Examination) -> Option<LogError> {
    check(dir, examined, OnLoss::Cut, None).err()
}

/// A sole voter with an empty log must not treat the partition folders as strays: their topics existed.
pub fn check_not_empty(dir: &Path, on_loss: OnLoss<'_>, partition: &Path) -> Result<(), LogError> {
    let OnLoss::RefuseSoleVoter { node_id, static_voters } = on_loss else { return Ok(()) };
    let examined = Examination::of(dir)?;
    let is_empty = examined.end_with_snapshots().end_offset == 0 && examined.loss(true).is_none();
    if !is_empty || !is_sole_voter(dir, &examined, node_id, static_voters)? {
        return Ok(());
    }
    let reason = format!(
        "the metadata log is empty or missing, although {} belongs to a topic: the topics are lost with the log. Nothing was \
         changed. Restore {} from a copy; or move the folders of the partitions away to begin without them",
        partition.display(),
        dir.display()
    );
    Err(LogError::Directory { path: dir.to_owned(), reason })
}

/// Checks the first batch of each snapshot before anything is changed.
fn check_snapshots(dir: &Path, examined: &Examination, advice: Option<&str>) -> Result<(), LogError> {
    let mut found: Vec<(SnapshotId, i64)> = Vec::new();
    for &id in &examined.snapshots {
        let path = dir.join(id.file_name());
        let (epoch, timestamp) =
            checkpoint::first_words(&path).map_err(|error| with_way_out(dir, examined, id, error, advice))?;
        if epoch != id.epoch {
            let reason = format!("its batches have epoch {epoch}: it is not the snapshot in its name");
            return Err(with_way_out(dir, examined, id, LogError::Corrupt { path, position: 0, reason }, advice));
        }
        found.push((id, timestamp));
    }
    // A clock that was set back is not damage, so compare with the log too.
    if found.is_sorted_by_key(|(_, timestamp)| *timestamp) {
        return Ok(());
    }
    for &(id, timestamp) in &found {
        let in_log = timestamp_at(dir, examined, id.end_offset - 1);
        let other = found.iter().find(|(other, stated)| *other != id && in_log == Some(*stated));
        if let Some((other, _)) = other.filter(|_| in_log != Some(timestamp)) {
            let (this, other) = (id.file_name(), other.file_name());
            let reason = format!("{this} has the content of {other}. Nothing was changed. Exchange their names");
            return Err(LogError::Directory { path: dir.to_owned(), reason });
        }
    }
    Ok(())
}

/// The append time of the record at an offset of the log, if it exists.
fn timestamp_at(dir: &Path, examined: &Examination, offset: i64) -> Option<i64> {
    if examined.start_offset.is_none_or(|start| offset < start) || offset >= examined.end.end_offset {
        return None;
    }
    let bytes = LogReader::new(dir).read(offset, 1).ok()?;
    klamm_records::batches(&bytes).find_map(Result::ok).map(|batch| batch.header().max_timestamp())
}

/// The error of a damaged snapshot with advice.
pub fn with_way_out(
    dir: &Path,
    examined: &Examination,
    id: SnapshotId,
    error: LogError,
    advice: Option<&str>,
) -> LogError {
    let LogError::Corrupt { path, position, reason } = error else { return error };
    let older = examined.snapshots.iter().rfind(|other| **other < id).map_or(0, |other| other.end_offset);
    let is_in_log = examined.start_offset.is_some_and(|start| start <= older) && examined.end.end_offset > 0;
    let way_out = match is_in_log {
        true => format!("Move it away: the log holds the records from offset {older} on"),
        false => way_out(dir, false, advice),
    };
    LogError::Corrupt { path, position, reason: format!("{reason}. Nothing was changed. {way_out}") }
}

/// If the log does not start at offset 0, a snapshot must contain its first records.
fn check_start(dir: &Path, examined: &Examination, is_sole_voter: bool, advice: Option<&str>) -> Result<(), LogError> {
    let start = examined.start_offset.unwrap_or(0);
    if start == 0 || examined.snapshots.last().is_some_and(|newest| newest.end_offset >= start) {
        return Ok(());
    }
    let way_out = way_out(dir, is_sole_voter, advice);
    let reason = format!(
        "the log begins at offset {start} and there is no snapshot of what came before: a segment or a snapshot is missing. \
         Nothing was changed. {way_out}"
    );
    Err(LogError::Directory { path: dir.to_owned(), reason })
}

fn refused(dir: &Path, loss: &Loss, advice: Option<&str>) -> LogError {
    let reason = format!("{loss}. Nothing was changed. {}", way_out(dir, true, advice));
    LogError::Directory { path: dir.to_owned(), reason }
}

/// The operator's options: `advice` if the log does not belong to a server.
fn way_out(dir: &Path, is_sole_voter: bool, advice: Option<&str>) -> String {
    if let Some(advice) = advice {
        return advice.to_owned();
    }
    let log_dir = dir.parent().unwrap_or(dir).display();
    match is_sole_voter {
        true => format!(
            "Restore {} from a copy; or give up what is lost: `klamm quorum recover --accept-loss --apply {log_dir}`",
            dir.display()
        ),
        false => format!(
            "Restore {} from a copy; or remove all of {log_dir}, format it again, and let this node join the others",
            dir.display()
        ),
    }
}

/// Whether the intact part contains this node as the only voter.
fn is_sole_voter(dir: &Path, examined: &Examination, node_id: i32, static_voters: &[i32]) -> Result<bool, LogError> {
    let mut entries = Vec::new();
    for id in examined.snapshots.iter().rev() {
        // A damaged snapshot is rejected when it is opened.
        if let Ok(records) = checkpoint::header_records(&dir.join(id.file_name())) {
            entries.extend(records.into_iter().map(|(kind, value)| ControlEntry { offset: -1, kind, value }));
            break;
        }
    }
    entries.extend(examined.control.iter().cloned());
    let newest = entries.iter().rev().find_map(|entry| match entry.parse() {
        Ok(ControlRecord::KRaftVoters { voters }) => Some(voters.iter().map(|voter| voter.id).collect::<Vec<_>>()),
        _ => None,
    });
    Ok(newest.as_deref().unwrap_or(static_voters) == [node_id])
}

/// Truncates the log at the end of its intact part, and removes files that would contradict it.
pub fn cut(
    dir: &Path,
    cache: &Arc<FileCache>,
    examined: &Examination,
    loss: Option<&Loss>,
    warnings: &mut Vec<String>,
) -> Result<(), LogError> {
    if let Some(loss) = loss {
        warnings.push(format!(
            "{loss}. This replica does not vote until it has fetched them again from the leader of the quorum"
        ));
    }
    if let Some(damage) = &examined.damage {
        if loss.is_none() {
            warnings.extend(torn(damage));
        }
        cut_at(dir, cache, damage)?;
    }
    if examined.epochs_are_wrong {
        cache.remove(&dir.join(klamm_log::checkpoint::LEADER_EPOCH))?;
    }
    Ok(())
}

/// A torn write is not reported unless intact batches are removed with it.
fn torn(damage: &Damage) -> Option<String> {
    let (first, last) = damage.intact_after?;
    Some(format!(
        "{} is cut at byte {}, offset {}: {}. {} bytes go, with the batches from offset {first} to {}, of which nothing was \
         acknowledged",
        damage.path.display(),
        damage.position,
        damage.offset,
        damage.reason,
        damage.bytes,
        last.end_offset
    ))
}

/// Removes the segments after the damage, last one first: a crash in between leaves a shorter log of the same kind.
fn cut_at(dir: &Path, cache: &Arc<FileCache>, damage: &Damage) -> Result<(), LogError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(LogError::io("cannot list", dir))? {
        let name = entry.map_err(LogError::io("cannot list", dir))?.file_name();
        names.extend(name.to_str().and_then(FileName::parse).filter(|name| name.stage == Stage::Live));
    }
    names.sort_unstable();
    let damaged = damage.path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse);
    let Some(damaged) = damaged else { return Ok(()) };
    let is_first = names.first().is_some_and(|first| first.base_offset == damaged.base_offset);
    let keeps_segment = damage.position > 0 || is_first;
    for name in names.iter().rev().take_while(|name| name.base_offset >= damaged.base_offset) {
        if name.base_offset > damaged.base_offset || !keeps_segment || name.kind != Kind::Log {
            cache.remove(&dir.join(name.to_string()))?;
        }
    }
    if keeps_segment {
        let file = LogFile::new(&PartitionDir::new(dir), damaged).open(cache)?;
        file.set_len(damage.position)?;
        file.sync()?;
    }
    cache.sync_dir(dir)
}

/// Whether the log ends before the snapshot does, or contains other records than the snapshot. For an empty log, the
/// epoch file is ignored: it belongs to another log.
pub fn is_behind(log: &Log, id: SnapshotId) -> bool {
    let has_older_epoch = log.latest_epoch().is_some_and(|epoch| epoch < id.epoch);
    let is_empty = log.log_start_offset() == log.log_end_offset();
    id.end_offset > log.log_end_offset() || has_older_epoch || is_empty && !log.epochs().is_empty()
}
