//! A backend with one file for each partition, whose results a test controls.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use klamm_base::{ErrorCode, Uuid};
use klamm_log::files::{FileCache, LogFile, OpenFile, PartitionDir};
use klamm_log::names::{FileName, Kind};
use klamm_log::producers::Producers;
use klamm_log::{Claim, FileSlice, Guard};
use klamm_metadata::MetadataImage;
use klamm_metadata::records::{Record, RemoveTopicRecord};
use klamm_records::header::{self, Header};
use klamm_replica::{
    Appended, Awaits, FetchWaiter, Fetched, FoundOffset, OffsetQuery, PartitionFetch, Refused, SessionEntry,
};
use parking_lot::Mutex;

use super::{INTERNAL, NAMED, image};
use crate::backend::{Backend, Partition};

/// One partition: batches in a file, acknowledged immediately or on request.
pub struct FakePartition {
    file: Arc<OpenFile>,
    pub state: Mutex<FakeState>,
}

/// A callback for a committed offset.
type Waiting = (i64, Box<dyn FnOnce(ErrorCode) + Send>);

pub struct FakeState {
    /// Base offset, last offset, position and length of each batch.
    batches: Vec<(i64, i64, u64, usize)>,
    size: u64,
    pub end_offset: i64,
    pub high_watermark: i64,
    pub log_start_offset: i64,
    pub holds_back: bool,
    pub append_error: Option<ErrorCode>,
    pub fetch_error: Option<ErrorCode>,
    pub verification_error: Option<ErrorCode>,
    pub is_transaction_open: bool,
    producers: Producers,
    /// The guards of all appends.
    pub guards: Vec<Option<Guard>>,
    waiting: Vec<Waiting>,
    watching: Vec<Arc<FetchWaiter>>,
    quiet: Vec<SessionEntry>,
    /// The number of reads.
    pub fetches: usize,
}

impl FakePartition {
    fn new(file: Arc<OpenFile>) -> Self {
        let state = Mutex::new(FakeState {
            batches: Vec::new(),
            size: 0,
            end_offset: 0,
            high_watermark: 0,
            log_start_offset: 0,
            holds_back: false,
            append_error: None,
            fetch_error: None,
            verification_error: None,
            is_transaction_open: false,
            producers: Producers::new(BTreeSet::new()),
            guards: Vec::new(),
            waiting: Vec::new(),
            watching: Vec::new(),
            quiet: Vec::new(),
            fetches: 0,
        });
        Self { file, state }
    }

    /// Advances the high watermark to `offset`.
    pub fn commit(&self, offset: i64) {
        let mut state = self.state.lock();
        state.high_watermark = offset;
        let waiting = std::mem::take(&mut state.waiting);
        let (due, later): (Vec<Waiting>, _) = waiting.into_iter().partition(|(end, _)| *end <= offset);
        state.waiting = later;
        let (watching, quiet) = (std::mem::take(&mut state.watching), std::mem::take(&mut state.quiet));
        drop(state);
        due.into_iter().for_each(|(_, done)| done(ErrorCode::NONE));
        watching.iter().for_each(|waiter| waiter.wake());
        quiet.into_iter().for_each(SessionEntry::notify);
    }

    /// Drops the file's pages from the page cache, if the file system has one.
    #[cfg(target_os = "linux")]
    pub fn forget_cached(&self) {
        self.file.sync().expect("a disk");
        let fd = std::os::fd::AsRawFd::as_raw_fd(self.file.file());
        // SAFETY: the descriptor is open; the call touches no memory of ours.
        unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) };
    }

    pub fn cut_file(&self) {
        self.file.set_len(0).expect("a file");
    }

    pub fn watcher_count(&self) -> usize {
        self.state.lock().watching.iter().filter(|waiter| !waiter.has_ended()).count()
    }

    /// The number of sessions in which it is quiet.
    pub fn quiet_count(&self) -> usize {
        self.state.lock().quiet.len()
    }
}

impl Partition for FakePartition {
    fn append(&self, batch: &mut [u8], _acks: i16, guard: Option<Guard>, _now_ms: i64) -> Result<Appended, Refused> {
        let refused = |code| Refused { code, message: None, record_errors: Vec::new(), log_start_offset: -1 };
        let mut state = self.state.lock();
        state.guards.push(guard);
        if let Some(code) = state.append_error {
            let record_errors = vec![(0, Some("no key".to_owned())), (2, None)];
            return Err(Refused { message: Some("one or more".to_owned()), record_errors, ..refused(code) });
        }
        let Some(records) = Header::at_start_of(batch).map(|header| header.record_count()) else {
            return Err(refused(ErrorCode::INVALID_RECORD));
        };
        let (base_offset, position) = (state.end_offset, state.size);
        header::set_position(batch, base_offset, 5);
        self.file.write_at(batch, position).expect("room on the disk");
        state.batches.push((base_offset, base_offset + i64::from(records) - 1, position, batch.len()));
        state.size += batch.len() as u64;
        state.end_offset += i64::from(records);
        let end_offset = state.end_offset;
        let holds_back = state.holds_back;
        drop(state);
        if !holds_back {
            self.commit(end_offset);
        }
        Ok(Appended { base_offset, log_append_time_ms: -1, log_start_offset: 0, end_offset, is_acked: false })
    }

    fn begin_verification(&self, claim: Claim, is_adding: bool, now_ms: i64) -> Result<Option<Guard>, ErrorCode> {
        let mut state = self.state.lock();
        if let Some(code) = state.verification_error {
            return Err(code);
        }
        if state.is_transaction_open {
            return Ok(None);
        }
        let guard = state.producers.begin_verification(claim, is_adding, now_ms);
        guard.map_err(|error| error.code())
    }

    fn when_acked(&self, end_offset: i64, done: Box<dyn FnOnce(ErrorCode) + Send>) {
        let mut state = self.state.lock();
        if state.high_watermark >= end_offset {
            drop(state);
            return done(ErrorCode::NONE);
        }
        state.waiting.push((end_offset, done));
    }

    fn fetch(&self, request: &PartitionFetch<'_>) -> Fetched {
        let mut state = self.state.lock();
        state.fetches += 1;
        if let Some(code) = state.fetch_error {
            return Fetched::error(code);
        }
        if request.fetch_offset < state.log_start_offset {
            return Fetched::error(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        let committed = state.batches.iter().filter(|(base, ..)| *base < state.high_watermark);
        let mut len = 0;
        let mut position = None;
        for (_, _, at, size) in committed.filter(|(_, last, ..)| *last >= request.fetch_offset) {
            let first = position.is_none() && request.at_least_one;
            if len + size > request.max_bytes && !first {
                break;
            }
            position.get_or_insert(*at);
            len += size;
        }
        let quiet = request.quiet.filter(|quiet| {
            request.fetch_offset >= state.high_watermark
                && (quiet.high_watermark, quiet.log_start_offset) == (state.high_watermark, 0)
        });
        state.quiet.extend(quiet.map(|quiet| quiet.entry.clone()));
        let slice = |position| FileSlice { file: self.file.clone(), position, len };
        Fetched {
            high_watermark: state.high_watermark,
            last_stable_offset: state.high_watermark,
            log_start_offset: 0,
            aborted: request.read_committed.then(Vec::new),
            records: position.map(slice),
            is_quiet: quiet.is_some(),
            ..Fetched::error(ErrorCode::NONE)
        }
    }

    fn watch(&self, _awaits: Awaits, waiter: Arc<FetchWaiter>) {
        let mut state = self.state.lock();
        state.watching.retain(|waiter| !waiter.has_ended());
        state.watching.push(waiter);
    }

    fn end_quiet(&self, entry: &SessionEntry) {
        self.state.lock().quiet.retain(|own| own != entry);
    }

    fn find_offset(&self, query: &OffsetQuery) -> Result<FoundOffset, ErrorCode> {
        let state = self.state.lock();
        let (start, end) = (state.log_start_offset, state.high_watermark);
        match query.timestamp {
            -1 => Ok(FoundOffset { timestamp: -1, offset: end, leader_epoch: 5 }),
            -2 => Ok(FoundOffset { timestamp: -1, offset: start, leader_epoch: 5 }),
            _ => Err(ErrorCode::OFFSET_NOT_AVAILABLE),
        }
    }

    fn end_of_epoch(&self, current_leader_epoch: i32, epoch: i32) -> Result<(i32, i64), ErrorCode> {
        match current_leader_epoch {
            6.. => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
            _ if epoch == 5 => Ok((5, self.state.lock().end_offset)),
            _ => Ok((-1, -1)),
        }
    }
}

/// The partitions of [`image`] that broker 1 leads.
pub struct FakeBackend {
    image: Mutex<Arc<MetadataImage>>,
    partitions: HashMap<(Uuid, i32), Arc<FakePartition>>,
    now_ms: AtomicI64,
    is_broken: AtomicBool,
    _dir: tempfile::TempDir,
}

impl FakeBackend {
    pub fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let cache = FileCache::new(16);
        let of = PartitionDir::new(dir.path());
        let partition = |offset| {
            let file = LogFile::new(&of, FileName::live(offset, Kind::Log)).create(&cache).expect("a file");
            Arc::new(FakePartition::new(file))
        };
        let partitions = [((NAMED, 0), partition(0)), ((NAMED, 1), partition(1)), ((INTERNAL, 0), partition(2))];
        Arc::new(Self {
            image: Mutex::new(Arc::new(image())),
            partitions: partitions.into(),
            now_ms: AtomicI64::new(0),
            is_broken: AtomicBool::new(false),
            _dir: dir,
        })
    }

    /// Replaces the image by one without these topics.
    pub fn remove_topics(&self, ids: &[Uuid]) {
        self.apply(ids.iter().map(|&topic_id| Record::RemoveTopic(RemoveTopicRecord { topic_id })));
        for partition in self.partitions.values() {
            let high_watermark = partition.state.lock().high_watermark;
            partition.commit(high_watermark);
        }
    }

    /// Replaces the image by one with these records.
    pub fn apply<'r>(&self, records: impl Iterator<Item = Record<'r>>) {
        let records: Vec<_> = records.map(|record| record.encode(0).expect("a record")).collect();
        let mut image = self.image.lock();
        *image = Arc::new(image.apply(records.iter().map(Vec::as_slice)).expect("records that fit"));
    }

    /// Lets time pass.
    pub fn pass(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Lets the next use of the image panic.
    pub fn break_once(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Whether it has not panicked yet.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    pub fn at(&self, topic: Uuid, index: i32) -> &FakePartition {
        &self.partitions[&(topic, index)]
    }
}

impl Backend for FakeBackend {
    fn image(&self) -> Arc<MetadataImage> {
        assert!(!self.is_broken.swap(false, Ordering::Relaxed), "injected for the test");
        self.image.lock().clone()
    }

    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn partition(&self, topic: Uuid, index: i32) -> Result<Arc<dyn Partition>, ErrorCode> {
        let found = self.partitions.get(&(topic, index)).ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        Ok(found.clone())
    }
}
