//! Members of a share group that accept or hold the records that they acquire.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use klamm_load::members::{Member, NOT_READY, Partition};
use klamm_load::process::resident_kib;
use klamm_load::share::{Accepted, ShareFetch, fetched, share_heartbeat_frame};
use klamm_load::{connect, read_frame, send};

use crate::options::Options;

const HEARTBEAT: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(120);
const MAX_WAIT_MS: i32 = 100;

struct Plan<'a> {
    group: &'a str,
    topic: &'a str,
    address: &'a str,
    /// The minimum number of partitions per member.
    partitions: usize,
    records_max: i32,
    /// The number of records after which all members end.
    records: u64,
    /// Nothing is accepted of these records, or only every second one.
    holds: bool,
    alternates: bool,
}

/// The records that all members have acquired and accepted.
#[derive(Default)]
struct Counts {
    acquired: AtomicU64,
    accepted: AtomicU64,
}

/// `connections` members of `group` read `partitions` until `records` are accepted. With `hold=1` they accept nothing
/// until that many are acquired, and with `hold=2` only every second one; then the growth of the server's memory is
/// measured.
pub fn share(options: &Options) -> io::Result<String> {
    let (hold, connections) = (options.number("hold", 0), options.number("connections", 1));
    let plan = Plan {
        group: options.text("group", "bench"),
        topic: options.text("topic", "bench"),
        address: options.address(0),
        partitions: (options.number("partitions", 1) / connections).max(1) as usize,
        records_max: options.number("records_max", 500) as i32,
        records: options.number("records", 1_000_000),
        holds: hold > 0,
        alternates: hold == 2,
    };
    let pid = options.number("pid", 0) as u32;
    let counts = Counts::default();
    let (mut members, joined) = (Vec::new(), Instant::now());
    for at in 0..connections {
        members.push(ShareMember::join(&plan, &format!("{}-{at}", plan.group))?);
    }
    while !members.iter().all(ShareMember::is_assigned) {
        std::thread::sleep(RETRY);
        for member in &mut members {
            member.heartbeat()?;
        }
        if joined.elapsed() > PATIENCE {
            return Err(io::Error::other("the partitions are not assigned"));
        }
    }
    let before_kib = resident_kib(pid).unwrap_or(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = members.iter_mut().map(|member| scope.spawn(|| member.run(&counts))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a thread died"))?)
    })?;
    let took = start.elapsed().as_secs_f64();
    let after_kib = resident_kib(pid).unwrap_or(0);
    let (acquired, accepted) = (counts.acquired.into_inner(), counts.accepted.into_inner());
    Ok(format!(
        "\"acquired\":{acquired},\"accepted\":{accepted},\"share_seconds\":{took:.4},\"grown_kib\":{}",
        after_kib.saturating_sub(before_kib)
    ))
}

struct ShareMember<'a> {
    plan: &'a Plan<'a>,
    member: Member,
    coordinator: TcpStream,
    leader: TcpStream,
    epoch: i32,
    session: Vec<Partition>,
    accepted: Accepted,
    next_heartbeat: Instant,
    buffer: Vec<u8>,
}

impl<'a> ShareMember<'a> {
    fn join(plan: &'a Plan<'a>, id: &str) -> io::Result<Self> {
        let mut joined = Self {
            plan,
            member: Member::new(id.to_owned()),
            coordinator: connect(plan.address)?,
            leader: connect(plan.address)?,
            epoch: 0,
            session: Vec::new(),
            accepted: BTreeMap::new(),
            next_heartbeat: Instant::now(),
            buffer: Vec::new(),
        };
        joined.heartbeat()?;
        Ok(joined)
    }

    fn is_assigned(&self) -> bool {
        self.member.owned.len() >= self.plan.partitions
    }

    fn heartbeat(&mut self) -> io::Result<()> {
        send(&mut self.coordinator, &share_heartbeat_frame(&self.member, self.plan.group, self.plan.topic))?;
        let length = receive(&mut self.coordinator, &mut self.buffer)?;
        let code = self.member.take(&self.buffer[..length]);
        if code != 0 && !NOT_READY.contains(&code) {
            return Err(io::Error::other(format!("a heartbeat has error code {code}")));
        }
        self.next_heartbeat = Instant::now() + HEARTBEAT;
        Ok(())
    }

    fn run(&mut self, counts: &Counts) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = (0, Instant::now());
        loop {
            let done = if self.plan.holds { &counts.acquired } else { &counts.accepted }.load(Ordering::Relaxed);
            if done >= self.plan.records {
                return Ok(());
            }
            if done > seen.0 {
                seen = (done, Instant::now());
            }
            if seen.1.elapsed() > PATIENCE / 4 || Instant::now() > deadline {
                return Err(io::Error::other(format!("{done} of {} records, and no more", self.plan.records)));
            }
            if self.next_heartbeat <= Instant::now() {
                self.heartbeat()?;
            }
            self.fetch(counts)?;
        }
    }

    fn fetch(&mut self, counts: &Counts) -> io::Result<()> {
        let new: Vec<Partition> = self.member.owned.iter().filter(|one| !self.session.contains(one)).copied().collect();
        let frame = ShareFetch {
            group: self.plan.group,
            member: &self.member.id,
            epoch: self.epoch,
            records_max: self.plan.records_max,
            max_wait_ms: MAX_WAIT_MS,
            new: &new,
            accepted: &self.accepted,
        };
        send(&mut self.leader, &frame.frame())?;
        let length = receive(&mut self.leader, &mut self.buffer)?;
        let found = fetched(&self.buffer[..length])?;
        self.epoch += 1;
        self.session.extend(new);
        let accepted: i64 = self.accepted.values().flatten().map(|(first, last)| last - first + 1).sum();
        counts.accepted.fetch_add(accepted as u64, Ordering::Relaxed);
        self.accepted.clear();
        for one in found {
            let acquired: i64 = one.acquired.iter().map(|(first, last)| last - first + 1).sum();
            counts.acquired.fetch_add(acquired as u64, Ordering::Relaxed);
            if !self.plan.holds {
                self.accepted.insert(one.partition, one.acquired);
            } else if self.plan.alternates {
                let offsets = one.acquired.iter().flat_map(|(first, last)| (*first..=*last).step_by(2));
                self.accepted.insert(one.partition, offsets.map(|offset| (offset, offset)).collect());
            }
        }
        self.accepted.retain(|_, offsets| !offsets.is_empty());
        Ok(())
    }
}

fn receive(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<usize> {
    read_frame(stream, buffer)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
