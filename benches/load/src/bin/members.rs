//! Members of consumer groups (KIP-848), each with a connection of its own: how long until the groups are stable after
//! all joined, after more joined, and after these left; or, with `grow`, after the topic got more partitions. A JSON
//! object, and before it, with `grow`, a line once all have joined: then the caller adds the partitions. Members connect
//! before the time begins: connections that overflow the listener's backlog are repeated by TCP after 1 s and 3 s.
//!
//! `klamm-members address=HOST:PORT group=NAME topic=NAME partitions=N members=N [more=N] [grow=N] [groups=N]
//! [interval=MS] [threads=N]`. The members are spread over `groups` groups, NAME-0 and so on. A member with news sends
//! its next heartbeat at once, any other one after the interval. A group is stable when all members have the same epoch,
//! every partition has one owner that has reported it, and no member has two more than another. Progress goes to stderr.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use klamm_load::members::{FORGOTTEN, Member, NOT_READY, Partition};
use klamm_load::{connect, read_frame, send};

/// After this time without a new assignment for any member, a group that is not stable is given up.
const NEWS_TIMEOUT: Duration = Duration::from_secs(120);
const REPORT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

#[derive(Clone, Default)]
struct Options {
    address: String,
    group: String,
    topic: String,
    partitions: usize,
    members: usize,
    more: usize,
    grow: usize,
    groups: usize,
    interval: Duration,
    threads: usize,
}

/// A member's group, and its epoch and partitions once it has nothing to report; of all members that take part.
type Board = Mutex<Vec<(usize, Option<(i32, BTreeSet<Partition>)>)>>;

fn main() {
    let mut options = Options { interval: Duration::from_millis(1000), threads: 4, groups: 1, ..Options::default() };
    for argument in std::env::args().skip(1) {
        let (key, value) = argument.split_once('=').unwrap_or_else(|| panic!("{argument}: KEY=VALUE is expected"));
        let number = || value.parse().unwrap_or_else(|_| panic!("{argument}: a number must follow"));
        match key {
            "address" => options.address = value.to_owned(),
            "group" => options.group = value.to_owned(),
            "topic" => options.topic = value.to_owned(),
            "partitions" => options.partitions = number(),
            "members" => options.members = number(),
            "more" => options.more = number(),
            "grow" => options.grow = number(),
            "groups" => options.groups = number(),
            "interval" => options.interval = Duration::from_millis(number() as u64),
            "threads" => options.threads = number(),
            _ => panic!("{argument}: not known"),
        }
    }
    let mut heartbeats = Vec::new();
    let first = Party::start(&options, "first", options.members);
    let join_s = until_stable(&options, &[&first]);
    if options.grow > 0 {
        println!("joined");
        options.partitions = options.grow;
        let grow_s = until_stable(&options, &[&first]);
        let heartbeats = first.leave().len();
        println!(r#"{{"join_s": {join_s:.3}, "grow_s": {grow_s:.3}, "heartbeats": {heartbeats}}}"#);
        return;
    }
    let more = Party::start(&options, "more", options.more);
    let rebalance_s = until_stable(&options, &[&first, &more]);
    heartbeats.extend(more.leave());
    let leave_s = until_stable(&options, &[&first]);
    heartbeats.extend(first.leave());
    heartbeats.sort_unstable();
    let p99 = heartbeats[heartbeats.len() * 99 / 100];
    let times = format!(r#""join_s": {join_s:.3}, "rebalance_s": {rebalance_s:.3}, "leave_s": {leave_s:.3}"#);
    println!(r#"{{{times}, "heartbeats": {}, "p99_us": {}}}"#, heartbeats.len(), p99.as_micros());
}

/// Members that join and leave together.
struct Party {
    boards: Vec<Arc<Board>>,
    /// How many responses had a new assignment.
    news: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<Vec<Duration>>>,
}

impl Party {
    fn start(options: &Options, name: &str, count: usize) -> Self {
        let (news, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (mut boards, mut connected) = (Vec::new(), Vec::new());
        for thread in 0..options.threads {
            let numbers = (thread..count).step_by(options.threads);
            let groups: Vec<usize> = numbers.clone().map(|at| at % options.groups).collect();
            let ids: Vec<String> = numbers.map(|at| format!("{name}-{at}")).collect();
            let board = Arc::new(Board::new(groups.into_iter().map(|group| (group, None)).collect()));
            let connect = |id| (Member::new(id), connect(&options.address).expect("a broker"), Instant::now());
            connected.push((ids.into_iter().map(connect).collect::<Vec<_>>(), board.clone()));
            boards.push(board);
        }
        let threads = connected
            .into_iter()
            .map(|(members, board)| {
                let (options, news, is_over) = (options.clone(), news.clone(), is_over.clone());
                std::thread::spawn(move || take_part(&options, members, &board, &news, &is_over))
            })
            .collect();
        Self { boards, news, is_over, threads }
    }

    /// Ends all members; returns how long each heartbeat took.
    fn leave(self) -> Vec<Duration> {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("no failure")).collect()
    }
}

fn group_name(options: &Options, group: usize) -> String {
    if options.groups == 1 { options.group.clone() } else { format!("{}-{group}", options.group) }
}

/// A member, its connection, and when its next heartbeat is due.
type Connected = (Member, TcpStream, Instant);

fn take_part(
    options: &Options,
    mut members: Vec<Connected>,
    board: &Board,
    news: &AtomicUsize,
    is_over: &AtomicBool,
) -> Vec<Duration> {
    let groups: Vec<String> =
        board.lock().expect("no panic").iter().map(|(group, _)| group_name(options, *group)).collect();
    let (mut took, mut buffer) = (Vec::new(), Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let now = Instant::now();
        let due: Vec<usize> = (0..members.len()).filter(|at| members[*at].2 <= now).collect();
        let mut sent = Vec::with_capacity(due.len());
        for at in &due {
            let (member, stream, _) = &mut members[*at];
            let frame = member.heartbeat_frame(&groups[*at], &options.topic);
            sent.push(Instant::now());
            send(stream, &frame).expect("a connection");
        }
        for (at, sent) in due.iter().zip(sent) {
            let (member, stream, next) = &mut members[*at];
            let length = read_frame(stream, &mut buffer).expect("a connection").expect("a response");
            let error = member.take(&buffer[..length]);
            let is_passing = NOT_READY.contains(&error) || FORGOTTEN.contains(&error);
            assert!(error == 0 || is_passing, "{}: error {error}", member.id);
            took.push(sent.elapsed());
            news.fetch_add(usize::from(member.has_news), Ordering::Relaxed);
            *next = if member.has_news { Instant::now() } else { sent + options.interval };
            if error != 0 {
                *next = sent + Duration::from_millis(100);
            }
            let state = (error == 0 && !member.has_news).then(|| (member.epoch, member.owned.clone()));
            board.lock().expect("no panic")[*at].1 = state;
        }
        if due.is_empty() {
            std::thread::sleep(LOOK);
        }
    }
    for ((member, stream, _), group) in members.iter_mut().zip(&groups) {
        send(stream, &member.leave_frame(group)).expect("a connection");
        read_frame(stream, &mut buffer).expect("a connection").expect("a response");
    }
    took
}

/// Seconds until the group is stable.
fn until_stable(options: &Options, parties: &[&Party]) -> f64 {
    let start = Instant::now();
    let (mut last, mut reported) = ((0, start), start);
    loop {
        let stable = count_stable(options, parties);
        if stable == options.groups {
            return start.elapsed().as_secs_f64();
        }
        let news = parties.iter().map(|party| party.news.load(Ordering::Relaxed)).sum();
        if news != last.0 {
            last = (news, Instant::now());
        }
        if reported.elapsed() > REPORT {
            reported = Instant::now();
            let seconds = start.elapsed().as_secs();
            eprintln!("{seconds} s: {stable} of {} groups are stable, after {news} new assignments", options.groups);
        }
        let has_failed = parties.iter().flat_map(|party| &party.threads).any(|thread| thread.is_finished());
        assert!(!has_failed, "a member failed");
        assert!(last.1.elapsed() < NEWS_TIMEOUT, "{stable} groups are stable, and nothing is new for {NEWS_TIMEOUT:?}");
        std::thread::sleep(LOOK);
    }
}

fn count_stable(options: &Options, parties: &[&Party]) -> usize {
    let boards: Vec<_> = parties.iter().flat_map(|party| &party.boards).collect();
    let mut groups = vec![Seen::default(); options.groups];
    for board in &boards {
        for (group, state) in board.lock().expect("no panic").iter() {
            groups[*group].add(state.as_ref().map(|(epoch, partitions)| (*epoch, partitions.len())));
        }
    }
    let count = groups.iter().filter(|seen| seen.is_stable(options.partitions)).count();
    if count < options.groups {
        return count; // as nearly always: each partition of each member need not be looked at
    }
    let mut owned = vec![BTreeSet::new(); options.groups];
    for board in &boards {
        for (group, state) in board.lock().expect("no panic").iter() {
            owned[*group].extend(state.iter().flat_map(|(_, partitions)| partitions.iter().copied()));
        }
    }
    owned.iter().filter(|owned| owned.len() == options.partitions).count()
}

/// The state of a group's members.
#[derive(Clone, Default)]
struct Seen {
    epochs: BTreeSet<i32>,
    sizes: BTreeSet<usize>,
    count: usize,
    has_news: bool,
}

impl Seen {
    /// A member with its epoch and number of partitions; `None` if it has news.
    fn add(&mut self, member: Option<(i32, usize)>) {
        match member {
            Some((epoch, size)) => {
                self.epochs.insert(epoch);
                self.sizes.insert(size);
                self.count += size;
            }
            None => self.has_news = true,
        }
    }

    fn is_stable(&self, partitions: usize) -> bool {
        let spread = self.sizes.last().zip(self.sizes.first()).map(|(most, least)| most - least);
        let is_agreed = !self.has_news && self.epochs.len() == 1 && self.count == partitions;
        is_agreed && spread.is_some_and(|spread| spread <= 1)
    }
}
