//! The metadata log: batches of record values that the leader appends, and that are read, truncated, and cleaned
//! below snapshots.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use klamm_base::LogError;
use klamm_base::counters::Named;
use klamm_log::files::FileCache;
use klamm_log::{AppendError, FlushJob, Log, LogConfig, LogContext, OpenAt, Recovery};
use klamm_metadata::MetadataImage;
use klamm_metadata::checkpoint;
use klamm_metadata::log_batches::LoadError;
use klamm_records::{BatchBuilder, BatchFields, Compression, batches};
use parking_lot::Mutex;

use super::batches::{batch_start, has_epoch, whole_batches};
use super::buffered::BufferedLog;
use super::control::{self, ControlEntries, ControlEntry};
use super::examination::Examination;
use super::flusher::{Flushes, OnFlushed, QuorumFlusher};
use super::opening::{self, OnLoss, is_behind};
use super::received::{ReceiveError, Received};
use super::recovery_point::{LogEnd, RecoveryPoint};
use super::snapshots::{SnapshotId, SnapshotInfo, Snapshots};

/// The largest batch of the metadata log (Apache Kafka's `KafkaRaftClient.MAX_BATCH_SIZE_BYTES`).
pub const BATCH_BYTES_MAX: usize = 8 << 20;

const TOPIC: &str = "__cluster_metadata";

/// Configuration of the metadata log: sizes in bytes, times in ms.
#[derive(Clone, Debug)]
pub struct QuorumLogConfig {
    pub segment_bytes: u32,
    pub segment_ms: i64,
    /// Replaces the advice in the error of a damaged log if the log does not belong to a server, whose commands have
    /// other names.
    pub advice: Option<String>,
}

/// Why replaying committed records failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayFailed {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Apply(#[from] LoadError),
}

/// The log, its snapshots and its flusher.
pub struct QuorumLog {
    dir: PathBuf,
    log: Arc<BufferedLog>,
    batch_bytes_max: usize,
    snapshots: Mutex<Snapshots>,
    control: ControlEntries,
    cache: Arc<FileCache>,
    /// The number of snapshot transfers begun, and the current one.
    received: Mutex<(u64, Option<Arc<Received>>)>,
    flushes: Arc<Flushes>,
    flusher: QuorumFlusher,
    recovery_point: Arc<RecoveryPoint>,
    examined: Examination,
    advice: Option<String>,
}

impl QuorumLog {
    /// Opens `dir` (`<metadata.log.dir>/__cluster_metadata-0`), creating it if necessary, and checks the whole log: a
    /// metadata log is small, and no part of it may be trusted unchecked. Nothing is changed if a loss is the reason
    /// for a refusal.
    pub fn open(
        dir: &Path,
        config: &QuorumLogConfig,
        context: &LogContext,
        on_loss: OnLoss<'_>,
        now_ms: i64,
    ) -> Result<(Self, Recovery), LogError> {
        let examined = Examination::of(dir)?;
        let loss = opening::check(dir, &examined, on_loss, config.advice.as_deref())?;
        std::fs::create_dir_all(dir).map_err(LogError::io("cannot make", dir))?;
        let mut known = examined.recovery_point.unwrap_or_default();
        match &loss {
            Some(_) if matches!(on_loss, OnLoss::Accept) => known.end = examined.end_with_snapshots(),
            Some(loss) => known.end = known.end.max(loss.proven),
            None => {}
        }
        let recovery_point = RecoveryPoint::open(&context.cache, dir, examined.recovery_point, known)?;
        let mut warnings = examined.unneeded.iter().map(ToString::to_string).collect();
        opening::cut(dir, &context.cache, &examined, loss.as_ref(), &mut warnings)?;
        let mut snapshots = Snapshots::open(dir, &context.cache)?;
        let batch_bytes_max = BATCH_BYTES_MAX.min(config.segment_bytes as usize);
        let advice = config.advice.clone();
        let config = Arc::new(LogConfig {
            segment_bytes: config.segment_bytes,
            segment_ms: config.segment_ms,
            retention_ms: -1,
            retention_bytes: -1,
            max_message_bytes: BATCH_BYTES_MAX as u32,
            ..LogConfig::default()
        });
        let at = OpenAt { recovery_point: 0, log_start_offset: 0, clean: false, has_gaps: false, ..OpenAt::default() };
        let (mut log, mut recovery) = Log::open(dir, TOPIC, 0, config, context, at, now_ms)?;
        snapshots.remove_before(log.log_start_offset())?;
        // Completes an interrupted install.
        if let Some(id) = snapshots.list().last().map(|info| info.id).filter(|id| is_behind(&log, *id)) {
            log.truncate_fully_and_start_at(id.end_offset, now_ms)?;
        }
        log.flush()?;
        warnings.append(&mut recovery.warnings);
        recovery.warnings = warnings;
        let recovery_point = Arc::new(recovery_point);
        let log = Arc::new(BufferedLog::new(dir.to_owned(), log));
        let flushes = Arc::new(Flushes::new(log.clone(), recovery_point.clone()));
        flushes.note_durable()?;
        let flusher = QuorumFlusher::start(flushes.clone()).map_err(LogError::io("cannot start a thread for", dir))?;
        let snapshots = Mutex::new(snapshots);
        let control = ControlEntries::default();
        let (cache, received) = (context.cache.clone(), Mutex::new((0, None)));
        let dir = dir.to_owned();
        let opened = Self {
            dir,
            log,
            batch_bytes_max,
            snapshots,
            control,
            cache,
            received,
            flushes,
            flusher,
            recovery_point,
            examined,
            advice,
        };
        Ok((opened, recovery))
    }

    /// The log's counters since it was opened.
    pub fn counters(&self) -> Vec<Named> {
        self.log.written().0.counters().of_metadata().collect()
    }

    /// The directory of the log.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The log start offset.
    pub fn start_offset(&self) -> i64 {
        self.log.written().0.log_start_offset()
    }

    /// The offset that the next record receives.
    pub fn end_offset(&self) -> i64 {
        self.log.end_offset()
    }

    /// Everything below is durable.
    pub fn flushed_offset(&self) -> i64 {
        self.log.flushed_offset()
    }

    /// Adds advice to the error of a snapshot that existed at the start and cannot be read.
    pub fn with_way_out(&self, id: SnapshotId, error: LogError) -> LogError {
        opening::with_way_out(&self.dir, &self.examined, id, error, self.advice.as_deref())
    }

    /// The log was durable at least up to here. If it ends earlier, records were lost and not fetched again yet.
    pub fn proven_end(&self) -> LogEnd {
        self.recovery_point.end()
    }

    /// Bytes of all segments.
    pub fn size_bytes(&self) -> u64 {
        let (log, queued_bytes) = self.log.written();
        log.size() + queued_bytes
    }

    /// The epoch of the last record, of the latest snapshot if the log is empty, 0 if there is neither.
    pub fn last_epoch(&self) -> i32 {
        self.log.latest_epoch().or_else(|| self.latest_snapshot().map(|id| id.epoch)).unwrap_or(0)
    }

    /// The newest finished snapshot.
    pub fn latest_snapshot(&self) -> Option<SnapshotId> {
        self.snapshots.lock().list().last().map(|info| info.id)
    }

    /// The end of `epoch` in this log as (end offset, epoch). For an epoch after the last one: the log's end and the
    /// last epoch.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> (i64, i32) {
        let earliest = self.snapshots.lock().list().first().map(|info| info.id);
        let last = self.last_epoch();
        let log = self.log.settled();
        if epoch > last {
            return (log.log_end_offset(), last);
        }
        match log.end_offset_for_epoch(epoch) {
            Some((found, end)) => match earliest {
                // The epoch cache begins at the snapshot's end; the snapshot's epoch applies to everything before it.
                Some(snapshot) if end == snapshot.end_offset && found == epoch && !has_epoch(&log, epoch) => {
                    (end, snapshot.epoch)
                }
                _ => (end, found),
            },
            None => (log.log_end_offset(), last),
        }
    }

    /// The epoch of the record at `offset`, or of the snapshot that contains it.
    pub fn epoch_at(&self, offset: i64) -> Option<i32> {
        if let Some(epoch) = self.log.settled().epoch_for_offset(offset) {
            return Some(epoch);
        }
        let snapshots = self.snapshots.lock();
        snapshots.list().iter().find(|info| info.id.end_offset > offset).map(|info| info.id.epoch)
    }

    /// Appends record values as one batch and returns its last offset.
    pub fn append<V: AsRef<[u8]>>(&self, values: &[V], epoch: i32, timestamp_ms: i64) -> Result<i64, AppendError> {
        let mut builder = BatchBuilder::new(BatchFields::default(), Compression::NONE);
        for value in values {
            builder.append(timestamp_ms, None, Some(value.as_ref()), &[]).map_err(|_| too_large(values.len()))?;
        }
        self.append_batch(builder.finish().map_err(|_| too_large(values.len()))?, values.len(), epoch, timestamp_ms)
    }

    /// Appends control records, each (type, value), as one control batch and returns its last offset.
    pub fn append_control(
        &self,
        entries: &[(i16, Vec<u8>)],
        epoch: i32,
        timestamp_ms: i64,
    ) -> Result<i64, AppendError> {
        let fields = BatchFields { control: true, ..BatchFields::default() };
        let mut builder = BatchBuilder::new(fields, Compression::NONE);
        for (kind, value) in entries {
            let mut key = [0; 4];
            key[2..].copy_from_slice(&kind.to_be_bytes());
            builder.append(timestamp_ms, Some(&key), Some(value), &[]).map_err(|_| too_large(entries.len()))?;
        }
        let batch = builder.finish().map_err(|_| too_large(entries.len()))?;
        let last = self.append_batch(batch, entries.len(), epoch, timestamp_ms)?;
        let offsets = last + 1 - entries.len() as i64..=last;
        self.control.add(offsets.zip(entries).map(|(offset, (kind, value))| ControlEntry {
            offset,
            kind: *kind,
            value: value.clone(),
        }));
        Ok(last)
    }

    fn append_batch(&self, batch: Vec<u8>, count: usize, epoch: i32, now_ms: i64) -> Result<i64, AppendError> {
        let (size, segment_bytes) = (batch.len(), self.batch_bytes_max as u32);
        if size > self.batch_bytes_max {
            return Err(AppendError::LargerThanSegment { size, segment_bytes });
        }
        self.recovery_point.begin_epoch(epoch)?;
        self.log.append(batch, count, epoch, now_ms)
    }

    /// Appends complete batches from the leader unchanged and returns the new end offset.
    pub fn append_fetched(&self, batches: &[u8], max_epoch: i32, now_ms: i64) -> Result<i64, AppendError> {
        self.recovery_point.begin_epoch(max_epoch)?;
        let mut log = self.log.whole()?;
        log.append_as_follower(batches, max_epoch, now_ms)?;
        self.log.note_changed(&log);
        let end_offset = log.log_end_offset();
        drop(log);
        self.control.appended(batches, end_offset);
        Ok(end_offset)
    }

    /// Makes durable what was appended so far, on the flusher's thread.
    pub fn start_flush(&self, done: OnFlushed) {
        self.flusher.flush(done);
    }

    /// Makes durable what was appended so far, on this thread; returns the flushed offset, and the job for
    /// [`QuorumLog::prepare`] after the offset was reported.
    pub fn flush_here(&self) -> Result<(i64, Option<FlushJob>), LogError> {
        self.flushes.flush()
    }

    /// Makes the next flush fail: a flush on this thread failed, and the receiver of its error may have stopped.
    pub fn fail_flushes(&self, error: LogError) {
        self.flushes.fail(error);
    }

    /// Makes the next flushes cheap; the next flush reports an error.
    pub fn prepare(&self, job: Option<FlushJob>) {
        self.flushes.prepare(job);
    }

    /// Complete batches, beginning with the batch that contains `offset`: at least one, then as many as fit.
    pub fn read(&self, offset: i64, max_bytes: usize) -> Result<Vec<u8>, LogError> {
        self.read_below(offset, max_bytes, i64::MAX)
    }

    fn read_below(&self, offset: i64, max_bytes: usize, upto: i64) -> Result<Vec<u8>, LogError> {
        let (mut log, _) = self.log.written();
        if upto > log.log_end_offset() {
            drop(log);
            log = self.log.whole()?;
        }
        let slice = log.read(offset, max_bytes, upto, true)?;
        drop(log);
        let mut bytes = slice.read()?;
        let whole = whole_batches(&bytes);
        bytes.truncate(whole);
        Ok(bytes)
    }

    /// Calls `each` with the bytes of `[from, to)` in pieces of complete batches.
    pub fn for_each_batches<E: From<LogError>>(
        &self,
        mut from: i64,
        to: i64,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        const PIECE_BYTES: usize = 4 << 20;
        while from < to {
            let bytes = self.read_below(from, PIECE_BYTES, to)?;
            let next = batches(&bytes).filter_map(Result::ok).map(|batch| batch.header().next_offset()).last();
            let Some(next) = next.filter(|next| *next > from) else {
                let reason = format!("nothing whole at offset {from} although the log ends at {to}");
                return Err(LogError::Directory { path: self.dir.clone(), reason }.into());
            };
            each(&bytes)?;
            from = next;
        }
        Ok(())
    }

    /// Applies the records of `[from, to)` to `image`, which contains the log below `from`; control records are
    /// skipped.
    pub fn replay(&self, image: &MetadataImage, from: i64, to: i64) -> Result<MetadataImage, ReplayFailed> {
        let mut image = image.clone();
        self.for_each_batches(from, to, |bytes| {
            image = image.apply_batches(bytes).map_err(|error| match error {
                LoadError::Batch { .. } => ReplayFailed::Log(self.damaged(error.to_string())),
                error => ReplayFailed::Apply(error),
            })?;
            Ok::<(), ReplayFailed>(())
        })?;
        Ok(image)
    }

    fn damaged(&self, reason: String) -> LogError {
        LogError::Corrupt { path: self.dir.clone(), position: 0, reason }
    }

    /// The control records of the latest snapshot, and of the log at or above `from`, in ascending order.
    pub fn control_entries(&self, from: i64) -> Result<Vec<ControlEntry>, LogError> {
        self.control.from(from, || self.read_control_entries())
    }

    fn read_control_entries(&self) -> Result<Vec<ControlEntry>, LogError> {
        let mut found = Vec::new();
        let latest = self.latest_snapshot();
        if let Some(id) = latest {
            let entry = |(kind, value)| ControlEntry { offset: id.end_offset - 1, kind, value };
            found.extend(checkpoint::header_records(&self.snapshot_path(id))?.into_iter().map(entry));
        }
        self.for_each_batches(self.start_offset(), self.end_offset(), |bytes| {
            control::collect(bytes, &mut found);
            Ok::<(), LogError>(())
        })?;
        Ok(found)
    }

    /// Removes every record at or above `offset`, durably. A batch that contains `offset` is removed completely, and
    /// the log then ends at its base offset, so that the next fetched batch follows without a gap.
    pub fn truncate_to(&self, offset: i64, now_ms: i64) -> Result<(), LogError> {
        let mut log = self.log.whole()?;
        let offset = batch_start(&mut log, offset)?;
        if offset < self.recovery_point.end().end_offset {
            // The leader of a later epoch has none of the removed records, so neither they nor the lost ones are
            // committed.
            let before = (offset > log.log_start_offset()).then(|| log.epoch_for_offset(offset - 1)).flatten();
            let epoch = before.or_else(|| self.latest_snapshot().map(|id| id.epoch)).unwrap_or(0);
            self.recovery_point.set(LogEnd { end_offset: offset, epoch })?;
        }
        log.truncate_to(offset, now_ms)?;
        log.flush()?;
        self.log.note_changed(&log);
        drop(log);
        self.control.truncated(offset);
        Ok(())
    }

    /// The size in bytes of the batches at or above `offset`.
    pub fn bytes_from(&self, offset: i64) -> Result<u64, LogError> {
        let (mut log, queued_bytes) = self.log.written();
        match offset <= log.log_end_offset() {
            true => Ok(log.bytes_from(offset)? + queued_bytes),
            false => {
                drop(log);
                self.log.whole()?.bytes_from(offset)
            }
        }
    }

    /// The finished snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.snapshots.lock().list().to_vec()
    }

    /// The path of the snapshot with this id, existing or not.
    pub fn snapshot_path(&self, id: SnapshotId) -> PathBuf {
        self.snapshots.lock().path(id)
    }

    /// Adds a snapshot that was written to [`QuorumLog::snapshot_path`]. It is removed again if the log no longer
    /// contains its end because a newer snapshot was installed meanwhile.
    pub fn snapshot_finished(&self, id: SnapshotId) -> Result<(), LogError> {
        let start = self.start_offset();
        let mut snapshots = self.snapshots.lock();
        snapshots.add(id)?;
        snapshots.remove_before(start).map(drop)
    }

    /// The bytes of a finished snapshot from `position` on, `max_bytes` at most; `None` if it does not exist.
    pub fn read_snapshot(&self, id: SnapshotId, position: u64, max_bytes: usize) -> Result<Option<Vec<u8>>, LogError> {
        self.snapshots.lock().read(id, position, max_bytes)
    }

    /// Stores a slice of the leader's snapshot. Position 0 starts a new transfer and discards earlier slices.
    pub fn append_snapshot_slice(&self, id: SnapshotId, position: u64, data: &[u8]) -> Result<(), ReceiveError> {
        let mut received = self.received.lock();
        if position == 0 {
            received.0 += 1;
            received.1 = Some(Received::create(&self.cache, &self.dir, id, received.0)?);
        }
        match &received.1 {
            Some(current) => current.append(id, position, data),
            None => Err(ReceiveError::NotNext { id: id.file_name(), position, expected: "byte 0".to_owned() }),
        }
    }

    /// The snapshot that is being received.
    pub fn received_snapshot(&self) -> Option<Arc<Received>> {
        self.received.lock().1.clone()
    }

    /// Discards the snapshot that is being received.
    pub fn drop_received_snapshot(&self) {
        self.received.lock().1 = None;
    }

    /// Installs the snapshot that was received and checked as the newest; the log then starts and ends at its end.
    /// Durable.
    ///
    /// After a power cut the old log remains until the file has its final name. From then on, the install is
    /// completed: each start discards a log that ends before its newest snapshot.
    pub fn install_received_snapshot(&self, id: SnapshotId, now_ms: i64) -> Result<(), ReceiveError> {
        let Some(received) = self.received.lock().1.take() else {
            return Err(ReceiveError::NotChecked(id.file_name()));
        };
        received.finish(id, &self.snapshot_path(id))?;
        let end = LogEnd { end_offset: id.end_offset, epoch: id.epoch };
        self.recovery_point.set(self.recovery_point.end().max(end))?;
        // A flush in progress holds files of the old log.
        self.wait_for_flusher()?;
        let paused = self.flushes.pause();
        let mut log = self.log.whole()?;
        log.truncate_fully_and_start_at(id.end_offset, now_ms)?;
        log.flush()?;
        self.log.note_changed(&log);
        drop(log);
        drop(paused);
        self.control.forget();
        let mut snapshots = self.snapshots.lock();
        snapshots.add(id)?;
        snapshots.remove_before(id.end_offset)?;
        Ok(())
    }

    fn wait_for_flusher(&self) -> Result<(), LogError> {
        let (sender, flushed) = std::sync::mpsc::channel();
        self.flusher.flush(Box::new(move |result| drop(sender.send(result))));
        flushed.recv().expect("the flusher calls every callback").map(drop)
    }

    /// Moves the log start to a snapshot: removes complete segments below it and older snapshots. False if nothing
    /// was removed.
    pub fn delete_before(&self, id: SnapshotId, now_ms: i64) -> Result<bool, LogError> {
        let moved = {
            let mut log = self.log.whole()?;
            if id.end_offset > log.log_end_offset() {
                return Ok(false);
            }
            let moved = log.advance_log_start(id.end_offset);
            log.delete_expired(id.end_offset, now_ms)?;
            self.log.note_changed(&log);
            moved
        };
        Ok(self.snapshots.lock().remove_before(id.end_offset)? || moved)
    }

    /// Closes cleanly after the requested flushes.
    pub fn close(&self) -> Result<(), LogError> {
        self.wait_for_flusher()?;
        self.flusher.end();
        let _paused = self.flushes.pause();
        self.log.settled().close()?;
        self.recovery_point.close()
    }
}

fn too_large(count: usize) -> AppendError {
    AppendError::LargerThanSegment { size: count, segment_bytes: BATCH_BYTES_MAX as u32 }
}
