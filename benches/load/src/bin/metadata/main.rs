//! Measures the cost of the metadata image and the high watermark: one JSON object per line, with the row, the
//! measure, its value, its unit, and the maximum value if there is a goal.
//!
//! `klamm-metadata [rounds=7] [partitions=1000000] [only=WORD]`. Values are CPU time of one thread, the best of the
//! rounds: other processes do not count. The cluster is that of the published figures for a zone outage: topics of 10
//! partitions with three replicas, 10 000 replicas per broker.
mod cluster;
mod heap;
mod rows;

use std::hint::black_box;
use std::time::Duration;

fn main() {
    let mut options = Options { rounds: 7, partitions: 1_000_000, only: String::new() };
    for argument in std::env::args().skip(1) {
        let number = |value: &str| value.parse().unwrap_or_else(|_| panic!("{argument}: a number must follow"));
        match argument.split_once('=') {
            Some(("rounds", value)) => options.rounds = number(value),
            Some(("partitions", value)) => options.partitions = number(value),
            Some(("only", value)) => options.only = value.to_owned(),
            _ => panic!("{argument}: rounds=NUMBER, partitions=NUMBER or only=WORD is known"),
        }
    }
    rows::measure(&options);
}

struct Options {
    rounds: usize,
    /// Partitions of the large image.
    partitions: usize,
    /// A word in the names of the requested measures.
    only: String,
}

impl Options {
    /// Measures the best of the rounds and prints it. `work` returns the duration of one round.
    fn report(&self, row: &Row, mut work: impl FnMut() -> Duration) {
        if !row.name.contains(self.only.as_str()) {
            return;
        }
        let best = (0..self.rounds.max(1)).map(|_| work()).min().expect("a round");
        self.print(row, best.as_secs_f64() * row.unit.in_a_second() / row.times);
    }

    /// Counts the allocations of one round, whose operations `work` repeats, and prints how many each makes.
    fn report_allocations(&self, row: &Row, work: impl FnOnce()) {
        if row.name.contains(self.only.as_str()) {
            self.print(row, heap::allocations_of(work) as f64 / row.times);
        }
    }

    fn print(&self, row: &Row, value: f64) {
        let goal = row.goal.map_or_else(|| "null".to_owned(), |goal| goal.to_string());
        let Row { number, name, unit, .. } = row;
        println!(
            r#"{{"row": {number}, "name": "{name}", "value": {value:.4}, "unit": "{}", "goal": {goal}}}"#,
            unit.name()
        );
    }
}

/// One measure.
struct Row {
    /// The number of the goal that it belongs to.
    number: u32,
    name: String,
    unit: Unit,
    goal: Option<f64>,
    /// How often a round repeats the measured operation.
    times: f64,
}

#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
    Allocations,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Milliseconds => "ms",
            Unit::Microseconds => "us",
            Unit::Nanoseconds => "ns",
            Unit::Allocations => "allocations",
        }
    }

    fn in_a_second(self) -> f64 {
        match self {
            Unit::Seconds => 1.0,
            Unit::Milliseconds => 1e3,
            Unit::Microseconds => 1e6,
            Unit::Nanoseconds => 1e9,
            Unit::Allocations => unreachable!("they are counted, not timed"),
        }
    }
}

/// The CPU time of the work on this thread; its result is dropped after the measurement.
fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = processor_time();
    let result = work();
    let taken = processor_time() - start;
    drop(black_box(result));
    taken
}

fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec that the call may write to.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0, "the clock exists");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
