//! All operations at once, from many threads.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64};
use std::sync::mpsc::channel;
use std::thread::{self, Thread};

use klamm_records::batches;

use super::*;

/// Limit on the number of leases.
const LEASES_MAX: i32 = 10_000;
const TIME: Duration = Duration::from_millis(700);
/// More than anything takes on a busy machine.
const TOO_LONG: Duration = Duration::from_secs(30);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker for this thread.
fn waker() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

fn park() {
    let begun = Instant::now();
    thread::park_timeout(TOO_LONG);
    assert!(begun.elapsed() < TOO_LONG, "it was not woken");
}

/// State shared by the threads. A lease's number is its epoch, and all records appended during a lease have that
/// epoch.
struct Stage {
    scene: Scene,
    /// The epoch of the records that are appended; locked during an append.
    epoch: Mutex<i32>,
    /// The last lease that was granted, and the last that was revoked.
    begun: AtomicI32,
    ended: AtomicI32,
    /// For each lease, how many fetches were answered, and how many of them the core has seen.
    taken: Vec<AtomicUsize>,
    seen: Vec<AtomicUsize>,
    answered: AtomicUsize,
    waited: AtomicUsize,
    is_over: AtomicBool,
}

impl Stage {
    fn new() -> Self {
        let counts = || (0..=LEASES_MAX).map(|_| AtomicUsize::new(0)).collect();
        Self {
            scene: Scene::idle(),
            epoch: Mutex::new(EPOCH),
            begun: AtomicI32::new(0),
            ended: AtomicI32::new(0),
            taken: counts(),
            seen: counts(),
            answered: AtomicUsize::new(0),
            waited: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn has_ended(&self, lease: i32) -> bool {
        self.ended.load(Ordering::SeqCst) >= lease
    }

    fn append(&self) {
        let mut count = 0;
        while !self.is_over() {
            let epoch = self.epoch.lock();
            self.scene.append_in(*epoch);
            drop(epoch);
            count += 1;
            match count % 3 {
                0 => self.scene.flush(),
                _ => thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Grants and revokes leases repeatedly.
    fn lead(&self) {
        let begun = Instant::now();
        for lease in EPOCH + 1..=LEASES_MAX {
            if begun.elapsed() >= TIME {
                break;
            }
            let mut epoch = self.epoch.lock();
            *epoch = lease;
            let start_offset = self.scene.log.end_offset();
            self.scene.append_in(lease);
            drop(epoch);
            self.scene.begin(Lead { epoch: lease, start_offset, high_watermark: start_offset, ..lead() });
            self.begun.store(lease, Ordering::SeqCst);
            for round in 0..lease % 4 {
                thread::sleep(Duration::from_micros(300));
                self.count_seen(lease, &self.scene.answering.take_fetches());
                self.scene.answering.raise_high_watermark(start_offset + i64::from(round));
                self.scene.answering.notify_voters();
            }
            // A fetch answered now could read records of the next lease if the end did not wait for it.
            let epoch = self.epoch.lock();
            self.scene.append_in(lease);
            let fetches = self.scene.answering.end();
            drop(epoch);
            self.ended.store(lease, Ordering::SeqCst);
            self.count_seen(lease, &fetches);
        }
        self.is_over.store(true, Ordering::SeqCst);
    }

    fn count_seen(&self, lease: i32, fetches: &[LeasedFetch]) {
        self.seen[lease as usize].fetch_add(fetches.len(), Ordering::SeqCst);
    }

    /// `is_hasty`: does not wait to be woken.
    fn fetch(&self, id: i32, is_hasty: bool) {
        let waker = waker();
        let mut known = (0, 0);
        while !self.is_over() {
            let lease = self.begun.load(Ordering::SeqCst);
            // The records below exist or are being appended.
            let offset = self.scene.log.end_offset() - i64::from(lease % 2);
            let fetch = Fetch { epoch: lease, last_epoch: lease, ..PATIENT.of(id).at(offset) };
            let had_ended = self.has_ended(lease);
            let taken = self.scene.answering.take(&self.scene.listener, 18, &fetch.body(18), &waker);
            if !matches!(taken, Taken::Outside) {
                assert!(!had_ended, "taken by lease {lease} after its end");
                self.taken[lease as usize].fetch_add(1, Ordering::SeqCst);
            }
            let answer = match taken {
                Taken::Answered(body) => Some(Answer::read(&body)),
                Taken::Waits(waiting) => self.wait(lease, &waiting, is_hasty),
                Taken::Outside => None,
            };
            let Some(answer) = answer else {
                thread::yield_now();
                continue;
            };
            assert_eq!(answer.leader, (1, lease));
            let mut epochs = batches(&answer.records).map(|batch| batch.expect("whole").header().leader_epoch());
            assert!(epochs.all(|epoch| epoch == lease), "records that came after the end of lease {lease}");
            let known_of_lease = if known.0 == lease { known.1 } else { 0 };
            assert!(answer.high_watermark >= known_of_lease, "{} after {known:?}", answer.high_watermark);
            known = (lease, answer.high_watermark);
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn wait(&self, lease: i32, waiting: &Waiting, is_hasty: bool) -> Option<Answer> {
        self.waited.fetch_add(1, Ordering::SeqCst);
        loop {
            let had_ended = self.has_ended(lease);
            let looked = waiting.look(false);
            assert!(!had_ended || matches!(looked, Looked::Outside), "a fetch waits after the end of lease {lease}");
            match looked {
                Looked::Answered(body) => return Some(Answer::read(&body)),
                Looked::Outside => return None,
                Looked::Waits if is_hasty => std::hint::spin_loop(),
                Looked::Waits => park(),
            }
        }
    }
}

/// Runs `play`; a deadlock is a failure.
fn within_time<T: Send + 'static>(play: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = channel();
    thread::spawn(move || done.send(play()));
    ended.recv_timeout(TOO_LONG * 2).expect("neither a failure nor a deadlock")
}

#[test]
fn nothing_is_answered_after_the_end() {
    let stage = within_time(|| {
        let stage = Stage::new();
        thread::scope(|scope| {
            scope.spawn(|| stage.append());
            for (id, is_hasty) in [(2, false), (3, true), (BROKER, false)] {
                let stage = &stage;
                scope.spawn(move || stage.fetch(id, is_hasty));
            }
            stage.lead();
        });
        stage
    });
    let counts = |of: &[AtomicUsize]| of.iter().map(|count| count.load(Ordering::SeqCst)).collect::<Vec<_>>();
    assert_eq!(counts(&stage.taken), counts(&stage.seen));
    assert_eq!(stage.scene.waiter_count(), 0);
    // Otherwise the test would prove nothing.
    for (count, of) in [(&stage.answered, "answered"), (&stage.waited, "that waited")] {
        assert!(count.load(Ordering::SeqCst) > 10, "{} {of}", count.load(Ordering::SeqCst));
    }
}

/// Fetches what `news` creates, immediately after each round, for that many rounds; nothing else wakes the fetch.
fn follow(scene: &Scene, id: i32, rounds: i64, news: impl Fn(i64)) {
    let has = AtomicI64::new(END);
    thread::scope(|threads| {
        threads.spawn(|| {
            let waker = waker();
            for offset in END..END + rounds {
                let body = PATIENT.of(id).at(offset).body(18);
                if let Taken::Waits(waiting) = scene.answering.take(&scene.listener, 18, &body, &waker) {
                    // It was checked when it arrived: a connection does not check again until it is woken.
                    park();
                    while matches!(waiting.look(false), Looked::Waits) {
                        park();
                    }
                }
                has.store(offset + 1, Ordering::SeqCst);
            }
        });
        for offset in END..END + rounds {
            let begun = Instant::now();
            while has.load(Ordering::SeqCst) < offset {
                assert!(begun.elapsed() < TOO_LONG, "offset was not fetched: {offset}");
                std::hint::spin_loop();
            }
            // Earlier and later than the other thread checks.
            (0..offset * 37 % 500).for_each(|_| std::hint::spin_loop());
            news(offset + 1);
            if offset % 500 == 0 {
                scene.answering.take_fetches();
            }
        }
    });
}

#[test]
fn a_voter_is_woken_by_each_append() {
    within_time(|| {
        let scene = Scene::led(lead());
        follow(&scene, 2, 5000, |_| scene.append());
    });
}

#[test]
fn an_observer_is_woken_by_each_commit() {
    within_time(|| {
        let scene = Scene::led(lead());
        scene.answering.raise_high_watermark(END);
        follow(&scene, BROKER, 5000, |high_watermark| {
            scene.append();
            scene.answering.raise_high_watermark(high_watermark);
        });
    });
}
