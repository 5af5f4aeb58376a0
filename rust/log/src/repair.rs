//! Replaces damaged bytes of a log by the batches of another replica, which has the same ones.

use std::path::PathBuf;
use std::sync::Arc;

use klamm_base::LogError;
use klamm_records::header::{Header, compute_crc};

use super::damage::Damage;
use super::files::LogFile;
use super::partition_log::Log;

/// Damage that is known, and whose offsets are.
#[derive(Clone)]
pub struct DamagedRange {
    pub first_offset: i64,
    pub next_offset: i64,
    /// Where a replica that has the batches can be asked for them: it begins inside the first one if this log does.
    pub fetch_offset: i64,
    pub bytes: u64,
    pub file: PathBuf,
    position: u64,
    segment: Arc<LogFile>,
}

impl DamagedRange {
    /// Adds the complete batches of the range at the beginning of `bytes` to `found`; returns the offset after the last one.
    pub fn take(&self, bytes: &[u8], found: &mut Vec<u8>) -> i64 {
        let (mut at, mut next_offset) = (0, i64::MIN);
        while let Some(header) = Header::at_start_of(&bytes[at..]) {
            let Some(batch) = header.size().and_then(|size| bytes.get(at..at + size)) else { break };
            if header.base_offset() >= self.next_offset {
                break;
            }
            found.extend_from_slice(batch);
            next_offset = header.next_offset();
            at += batch.len();
        }
        next_offset
    }

    /// Identifies it among all of a node.
    pub fn place(&self) -> (PathBuf, u64) {
        (self.file.clone(), self.position)
    }
}

impl Log {
    /// The damage that was found so far, unless its offsets are unknown, or below the log start.
    pub fn damaged(&self) -> Vec<DamagedRange> {
        let log_start = self.log_start_offset();
        let of_segment = |segment: &super::segment::Segment| {
            let file = segment.log_file().clone();
            let range = move |damage: &super::damage::Damage| DamagedRange {
                first_offset: damage.first_offset,
                next_offset: damage.next_offset,
                fetch_offset: damage.first_offset.max(log_start),
                bytes: damage.end - damage.position,
                file: file.path(),
                position: damage.position,
                segment: file.clone(),
            };
            let is_read = |damage: &&super::damage::Damage| damage.next_offset > damage.first_offset.max(log_start);
            segment.damage().iter().filter(is_read).map(range).collect()
        };
        self.segments.iter().flat_map(|segment| -> Vec<DamagedRange> { of_segment(segment) }).collect()
    }

    /// Whether damage is known.
    pub(super) fn is_damaged(&self) -> bool {
        self.segments.iter().any(|segment| !segment.damage().is_empty())
    }

    /// Overwrites damage by intact batches, durably; false if they are not exactly what was there, or if the damage is
    /// known no longer. The producers and the indexes of aborted transactions then contain what the batches say of them.
    pub fn repair(&mut self, range: &DamagedRange, batches: &[u8]) -> Result<bool, LogError> {
        let is_epoch = |header: &Header<'_>| {
            self.epochs.epoch_for(header.base_offset()).is_none_or(|epoch| epoch == header.leader_epoch())
        };
        if !fits(range, batches, is_epoch) {
            return Ok(false);
        }
        let at = self.segments.iter().position(|segment| Arc::ptr_eq(segment.log_file(), &range.segment));
        let Some(at) = at else { return Ok(false) };
        let end = range.position + range.bytes;
        let is_range = |damage: &Damage| (damage.position, damage.end) == (range.position, end);
        if !self.segments[at].damage().iter().any(is_range) {
            return Ok(false);
        }
        self.restore_producers(range.first_offset..range.next_offset, batches)?;
        let segment = &mut self.segments[at];
        let file = segment.open(&self.context.cache)?;
        file.write_at(batches, range.position)?;
        file.sync()?;
        segment.note_repaired(range.position, end);
        Ok(true)
    }
}

/// Whether these are intact batches with exactly the offsets and the length of the range.
fn fits(range: &DamagedRange, batches: &[u8], is_epoch: impl Fn(&Header<'_>) -> bool) -> bool {
    let (mut at, mut next_offset) = (0, range.first_offset);
    while at < batches.len() {
        let Some(header) = Header::at_start_of(&batches[at..]).filter(|header| header.magic() == 2) else {
            return false;
        };
        let Some(batch) = header.size().and_then(|size| batches.get(at..at + size)) else { return false };
        if header.crc() != compute_crc(batch) || header.base_offset() < next_offset || !is_epoch(&header) {
            return false;
        }
        next_offset = header.next_offset();
        at += batch.len();
    }
    batches.len() as u64 == range.bytes && next_offset == range.next_offset
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use klamm_records::header::set_position;
    use tempfile::tempdir;

    use super::*;
    use crate::testing::{BatchSpec, batch, config, create, read_all};
    use crate::{LogContext, OpenAt, Origin};

    fn write_log(path: &Path) -> Vec<u8> {
        let mut log = create(path, config());
        for records in [1, 3, 2, 1] {
            let spec = BatchSpec { records, value_bytes: 700, ..BatchSpec::default() };
            log.append_as_leader(&mut batch(&spec), 0, 0, Origin::Client).expect("append");
        }
        log.close().expect("close");
        read_all(&mut log, 0)
    }

    fn flip(path: &Path, at: usize) {
        let file = path.join("00000000000000000000.log");
        let mut bytes = fs::read(&file).expect("read");
        bytes[at] ^= 1;
        fs::write(&file, bytes).expect("write");
    }

    #[test]
    fn a_range_is_replaced_by_batches_with_exactly_its_offsets() {
        let dir = tempdir().expect("a folder");
        let path = dir.path().join("t-0");
        let whole = write_log(&path);
        let opened = Log::open(&path, "t", 0, config().into(), &LogContext::new(64), OpenAt::default(), 0);
        let segment = opened.expect("open").0.segments[0].log_file().clone();
        let sizes: Vec<usize> =
            klamm_records::batches(&whole).map(|batch| batch.expect("whole").bytes().len()).collect();
        let batches = &whole[..sizes[0] + sizes[1]];
        let range = |first_offset, next_offset| DamagedRange {
            first_offset,
            next_offset,
            fetch_offset: first_offset,
            bytes: batches.len() as u64,
            file: path.clone(),
            position: 0,
            segment: segment.clone(),
        };
        assert!(fits(&range(0, 4), batches, |_| true));
        assert!(!fits(&range(1, 4), batches, |_| true), "offset 0 was not in the range");
        assert!(!fits(&range(0, 5), batches, |_| true), "offset 4 would be lost");
    }

    #[test]
    fn a_damaged_batch_is_replaced_by_the_same_one_and_by_no_other() {
        let dir = tempdir().expect("a folder");
        let path = dir.path().join("t-0");
        let whole = write_log(&path);
        let sizes: Vec<usize> =
            klamm_records::batches(&whole).map(|batch| batch.expect("whole").bytes().len()).collect();
        let second = sizes[0]..sizes[0] + sizes[1];
        flip(&path, second.start + 100);
        let at = OpenAt { keeps_damage: true, proven_end: 7, kept_power: true, ..OpenAt::default() };
        let opened = Log::open(&path, "t", 0, config().into(), &LogContext::new(64), at, 0);
        let (mut log, _) = opened.expect("open");
        let [range] = &log.damaged()[..] else { panic!("one damaged range") };
        assert_eq!((range.first_offset, range.next_offset, range.bytes), (1, 4, sizes[1] as u64));
        let (intact, before) = (&whole[second.clone()], &whole[..sizes[0]]);
        let mut changed = intact.to_vec();
        changed[100] ^= 1;
        let mut of_another_epoch = intact.to_vec();
        set_position(&mut of_another_epoch, 1, 1);
        for wrong in [&[][..], before, &changed, &intact[..intact.len() - 1], &of_another_epoch] {
            assert!(!log.repair(range, wrong).expect("readable"));
        }
        assert!(log.read(1, 100, 7, true).is_err());
        assert!(log.repair(range, intact).expect("written"));
        assert!(log.damaged().is_empty() && !log.repair(range, intact).expect("nothing to do"));
        assert_eq!(log.read(2, 100, 7, true).expect("readable").first_batch_offset, 1, "it is found where it is");
        assert!(read_all(&mut log, 0) == whole);
    }

    #[test]
    fn damage_is_asked_for_from_the_log_start_on() {
        let dir = tempdir().expect("a folder");
        let path = dir.path().join("t-0");
        let whole = write_log(&path);
        let first = klamm_records::batches(&whole).next().expect("four").expect("whole").bytes().len();
        flip(&path, first + 100);
        let open = OpenAt { keeps_damage: true, proven_end: 7, kept_power: true, ..OpenAt::default() };
        let (mut log, _) = Log::open(&path, "t", 0, config().into(), &LogContext::new(64), open, 0).expect("open");
        let asked = |log: &Log| -> Vec<(i64, i64)> {
            log.damaged().iter().map(|range| (range.fetch_offset, range.next_offset)).collect()
        };
        assert_eq!(asked(&log), [(1, 4)]);
        log.advance_log_start(2);
        assert_eq!(asked(&log), [(2, 4)], "another replica may have nothing below");
        log.advance_log_start(4);
        assert_eq!(asked(&log), []);
    }

    #[test]
    fn truncated_batches_are_no_longer_damaged() {
        for keeps_later in [true, false] {
            let dir = tempdir().expect("a folder");
            let path = dir.path().join("t-0");
            let whole = write_log(&path);
            let sizes: Vec<usize> =
                klamm_records::batches(&whole).map(|batch| batch.expect("whole").bytes().len()).collect();
            // The second batch, or the last one.
            let (at, offset) = if keeps_later { (sizes[0], 1) } else { (whole.len() - sizes[3], 6) };
            flip(&path, at + 100);
            let open = OpenAt { keeps_damage: true, proven_end: 7, kept_power: true, ..OpenAt::default() };
            let opened = Log::open(&path, "t", 0, config().into(), &LogContext::new(64), open, 0);
            let (mut log, _) = opened.expect("open");
            assert_eq!(log.damaged().len(), 1);
            log.truncate_to(offset, 0).expect("truncated");
            assert_eq!((log.damaged().len(), log.log_end_offset()), (0, offset));
            let mut other = batch(&BatchSpec { records: 2, value_bytes: 10, ..BatchSpec::default() });
            log.append_as_leader(&mut other, 1, 0, Origin::Client).expect("append");
            let read = log.read(offset, 1000, offset + 2, true).expect("it is there");
            assert_eq!(read.read().expect("readable"), other);
        }
    }
}
