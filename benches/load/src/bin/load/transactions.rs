//! Transactional producers, each with one transaction open at a time.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use klamm_load::transactions::{
    CONCURRENT_TRANSACTIONS, NOT_READY, Pair, Protocol, add_partition_frame, added, end_frame, ended,
    find_coordinator_frame, found_coordinator, init_frame, initialized, produced, transactional_frame,
};
use klamm_load::{batch, connect, read_frame, send};

use crate::now_ms;
use crate::options::{Options, usage};

/// The pause of Apache Kafka's producer before it repeats AddPartitionsToTxn and EndTxn.
const RETRY: Duration = Duration::from_millis(20);
/// The pause of the same producer before it repeats any other request (retry.backoff.ms).
const BACKOFF: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Plan {
    topic: String,
    bootstrap: String,
    protocol: Protocol,
    batches: u64,
    payload: Vec<u8>,
    began: Instant,
    until: Instant,
    /// Between the transactions of one producer; zero: each begins after the one before.
    interval: Duration,
}

#[derive(Default)]
struct Done {
    transactions: u64,
    batches: u64,
    commits_us: Vec<u64>,
    transactions_us: Vec<u64>,
}

/// `connections` producers commit transactions of `batches` requests of `records` records each for `seconds`. Producer
/// `p` writes to partition `p` modulo `partitions`, led at that address. `protocol` 1 is that of producers that add
/// partitions themselves, 2 that of KIP-890. With `seconds=0` each producer only receives its id. With `rate`, that many
/// transactions a second begin at regular times, and a transaction counts from the time at which it was due.
pub fn transactions(options: &Options) -> io::Result<String> {
    let (records, record) = (options.number("records", 100), options.number("record", 1024));
    let connections = options.number("connections", 1) as usize;
    let seconds = options.number("seconds", 10);
    let rate = options.number("rate", 0);
    let protocol = match options.number("protocol", 2) {
        1 => Protocol::AddsPartitions,
        2 => Protocol::Implicit,
        _ => usage("protocol"),
    };
    let began = Instant::now();
    let plan = Plan {
        topic: options.text("topic", "bench").to_owned(),
        bootstrap: options.address(0).to_owned(),
        protocol,
        batches: options.number("batches", 1),
        payload: batch(records as usize, record as usize, now_ms()),
        began,
        until: began + Duration::from_secs(seconds),
        interval: Duration::from_secs(connections as u64).checked_div(rate as u32).unwrap_or_default(),
    };
    let name = options.text("group", "bench");
    if seconds == 0 {
        for at in 0..connections {
            Producer::start(&plan, &format!("{name}-{at}"), 0, options.address(0))?;
        }
        return Ok(format!("\"ids\":{connections}"));
    }
    let partitions = options.number("partitions", 1) as usize;
    let threads: Vec<_> = (0..connections)
        .map(|at| {
            let (plan, id, partition) = (plan.clone(), format!("{name}-{at}"), at % partitions);
            let leader = options.address(partition).to_owned();
            let first = plan.began + plan.interval.mul_f64(at as f64 / connections as f64);
            std::thread::spawn(move || Producer::start(&plan, &id, partition as i32, &leader)?.run(first))
        })
        .collect();
    let mut all = Done::default();
    for thread in threads {
        let done = thread.join().map_err(|_| io::Error::other("a producer's thread died"))??;
        all.transactions += done.transactions;
        all.batches += done.batches;
        all.commits_us.extend(done.commits_us);
        all.transactions_us.extend(done.transactions_us);
    }
    let (commits, whole) = (percentiles(&mut all.commits_us), percentiles(&mut all.transactions_us));
    Ok(format!(
        "\"transactions\":{},\"bytes\":{},\"commit_p50_us\":{},\"commit_p99_us\":{},\"p50_us\":{},\"p99_us\":{}",
        all.transactions,
        all.batches * plan.payload.len() as u64,
        commits.0,
        commits.1,
        whole.0,
        whole.1
    ))
}

fn percentiles(micros: &mut [u64]) -> (u64, u64) {
    micros.sort_unstable();
    let at = |share: f64| micros.get((micros.len().saturating_sub(1) as f64 * share) as usize).copied().unwrap_or(0);
    (at(0.5), at(0.99))
}

struct Producer<'a> {
    plan: &'a Plan,
    id: String,
    partition: i32,
    coordinator: Connection,
    leader: Connection,
    pair: Pair,
    sequence: i32,
}

impl<'a> Producer<'a> {
    fn start(plan: &'a Plan, id: &str, partition: i32, leader: &str) -> io::Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let address = Connection::open(&plan.bootstrap)?.ask(&find_coordinator_frame(id), found_coordinator)?;
            let Some(address) = address else {
                wait(deadline, BACKOFF)?;
                continue;
            };
            let mut coordinator = Connection::open(&address)?;
            let (code, pair) = coordinator.ask(&init_frame(id), initialized)?;
            if code == 0 {
                let leader = Connection::open(leader)?;
                return Ok(Self { plan, id: id.to_owned(), partition, coordinator, leader, pair, sequence: 0 });
            }
            refuse_unless(&NOT_READY, "InitProducerId", code)?;
            wait(deadline, BACKOFF)?;
        }
    }

    /// Commits one transaction after another. With an interval, the first is due at `due`.
    fn run(mut self, mut due: Instant) -> io::Result<Done> {
        let mut done = Done::default();
        while Instant::now().max(due) < self.plan.until {
            let began = if self.plan.interval.is_zero() { Instant::now() } else { due };
            std::thread::sleep(began.saturating_duration_since(Instant::now()));
            due += self.plan.interval;
            if self.plan.protocol == Protocol::AddsPartitions {
                let frame = add_partition_frame(&self.id, self.pair, &self.plan.topic, self.partition);
                retry("AddPartitionsToTxn", RETRY, || self.coordinator.ask(&frame, added))?;
            }
            for _ in 0..self.plan.batches {
                self.produce()?;
                done.batches += 1;
            }
            let ending = Instant::now();
            self.commit()?;
            done.commits_us.push(ending.elapsed().as_micros() as u64);
            done.transactions_us.push(began.elapsed().as_micros() as u64);
            done.transactions += 1;
        }
        Ok(done)
    }

    fn produce(&mut self) -> io::Result<()> {
        let Plan { topic, protocol, payload, .. } = self.plan;
        let (pair, sequence) = (self.pair, self.sequence);
        let frame = transactional_frame(*protocol, &self.id, topic, self.partition, pair, sequence, payload);
        retry("Produce", BACKOFF, || self.leader.ask(&frame, produced))?;
        self.sequence += i32::from_be_bytes(payload[57..61].try_into().expect("four bytes"));
        Ok(())
    }

    fn commit(&mut self) -> io::Result<()> {
        let frame = end_frame(self.plan.protocol, &self.id, self.pair);
        let mut next = self.pair;
        retry("EndTxn", RETRY, || {
            let (code, pair) = self.coordinator.ask(&frame, ended)?;
            next = pair.unwrap_or(next);
            Ok(code)
        })?;
        if next != self.pair {
            (self.pair, self.sequence) = (next, 0);
        }
        Ok(())
    }
}

/// Repeats a request while an earlier transaction is being completed.
fn retry(what: &str, pause: Duration, mut ask: impl FnMut() -> io::Result<i16>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask()? {
            0 => return Ok(()),
            code => refuse_unless(&[CONCURRENT_TRANSACTIONS], what, code)?,
        }
        wait(deadline, pause)?;
    }
}

fn refuse_unless(retriable: &[i16], what: &str, code: i16) -> io::Result<()> {
    if retriable.contains(&code) {
        return Ok(());
    }
    Err(io::Error::other(format!("{what} failed with error code {code}")))
}

fn wait(deadline: Instant, pause: Duration) -> io::Result<()> {
    if Instant::now() > deadline {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the coordinator was not ready within a minute"));
    }
    std::thread::sleep(pause);
    Ok(())
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    fn open(address: &str) -> io::Result<Self> {
        Ok(Self { stream: connect(address)?, buffer: Vec::new() })
    }

    fn ask<T>(&mut self, frame: &[u8], read: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        send(&mut self.stream, frame)?;
        let length = read_frame(&mut self.stream, &mut self.buffer)?;
        let length = length.ok_or_else(|| io::Error::other("closed by the broker"))?;
        Ok(read(&self.buffer[..length]))
    }
}
