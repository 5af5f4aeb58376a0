//! Statistics of another process, mostly from `/proc`. `None` if there is no such process, or no `/proc`.

use std::fs;

/// User and system CPU seconds of process `pid`, for all threads including ended ones.
#[cfg(target_os = "linux")]
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: each call writes only to the location that it is given.
    let is_read =
        unsafe { libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0 };
    is_read.then_some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

#[cfg(not(target_os = "linux"))]
pub fn cpu_seconds(_pid: u32) -> Option<f64> {
    None
}

/// Resident memory, in KiB.
pub fn resident_kib(pid: u32) -> Option<u64> {
    field(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// The number of voluntary context switches of the threads of process `pid`: each sleep ended with a wake-up.
pub fn wake_ups(pid: u32) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let counts = tasks.flatten().filter_map(|task| {
        let status = task.path().join("status");
        field(status.to_str()?, "voluntary_ctxt_switches:")
    });
    Some(counts.sum())
}

fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Raises the limit on open files of this process to its maximum; returns that number.
pub fn raise_open_files() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read or write the struct that they are given.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return 256;
        }
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    limit.rlim_cur
}
