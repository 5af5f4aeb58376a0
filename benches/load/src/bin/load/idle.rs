//! Idle connections: memory for each, and the server's wake-ups.

use std::io;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use klamm_load::process::{resident_kib, wake_ups};
use klamm_load::requests::api_versions_frame;
use klamm_load::{connect, read_frame, send};

use crate::options::Options;

/// The first connections warm up one-time work of a process.
const FIRST: u64 = 100;

pub fn idle(options: &Options) -> io::Result<String> {
    let (count, pid) = (options.number("connections", 10_000).max(FIRST + 1), options.number("pid", 0) as u32);
    let period = Duration::from_secs(options.number("seconds", 5));
    let gone = || io::Error::other(format!("process {pid} cannot be looked at"));
    let mut connections = Vec::new();
    open(options, FIRST, &mut connections)?;
    let woken_before = woken(pid, period).ok_or_else(gone)?;
    let before = resident_kib(pid).ok_or_else(gone)?;
    open(options, count, &mut connections)?;
    let woken_with = woken(pid, period).ok_or_else(gone)?;
    let after = resident_kib(pid).ok_or_else(gone)?;
    let each = after.saturating_sub(before) as f64 / (count - FIRST) as f64;
    Ok(format!(
        "\"connections\":{},\"kib_each\":{each:.3},\"wake_ups\":{woken_with:.1},\"wake_ups_before\":{woken_before:.1}",
        connections.len(),
    ))
}

/// Opens connections until there are `count`; each has sent one request, as any client does.
fn open(options: &Options, count: u64, connections: &mut Vec<TcpStream>) -> io::Result<()> {
    let (frame, mut buffer) = (api_versions_frame(1), Vec::new());
    while (connections.len() as u64) < count {
        let mut stream = connect(options.address(0))?;
        send(&mut stream, &frame)?;
        read_frame(&mut stream, &mut buffer)?.ok_or_else(|| io::Error::other("closed by the broker"))?;
        connections.push(stream);
    }
    Ok(())
}

/// Wake-ups per second over a period that begins when earlier work has settled.
fn woken(pid: u32, period: Duration) -> Option<f64> {
    sleep(Duration::from_secs(1));
    let before = wake_ups(pid)?;
    sleep(period);
    Some((wake_ups(pid)? - before) as f64 / period.as_secs_f64())
}
