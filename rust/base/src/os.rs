//! Calls that only Linux has, each with a portable fallback, so that the engine also builds on other systems.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Starts to write back `[position, position + len)` without waiting; a hint.
#[cfg(target_os = "linux")]
pub fn start_write_back(file: &File, position: u64, len: u64) {
    // SAFETY: the descriptor is open for as long as `file` is borrowed; the call touches no memory of ours.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), position as i64, len as i64, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Other systems decide when to write back.
#[cfg(not(target_os = "linux"))]
pub fn start_write_back(_file: &File, _position: u64, _len: u64) {}

/// Makes all data of the file system that contains `file` durable in one call; `false` when the system has no such
/// call.
#[cfg(target_os = "linux")]
pub fn sync_file_system(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed.
    if unsafe { libc::syncfs(file.as_raw_fd()) } == 0 { Ok(true) } else { Err(io::Error::last_os_error()) }
}

/// Without `syncfs` the caller syncs file by file.
#[cfg(not(target_os = "linux"))]
pub fn sync_file_system(_file: &File) -> io::Result<bool> {
    Ok(false)
}

/// Reads bytes at `position` from the page cache: `None` when they would have to come from the disk.
#[cfg(target_os = "linux")]
pub fn read_if_cached(file: &File, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>> {
    let vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the one vector covers `buffer`, which is borrowed mutably until the call returns.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &vector, 1, position as i64, libc::RWF_NOWAIT) };
    if read >= 0 {
        return Ok(Some(read as usize));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EOPNOTSUPP) => Ok(None),
        _ => Err(error),
    }
}

/// The system does not report what is cached, so every read counts as one that may block.
#[cfg(not(target_os = "linux"))]
pub fn read_if_cached(_file: &File, _buffer: &mut [u8], _position: u64) -> io::Result<Option<usize>> {
    Ok(None)
}

/// Takes the advisory lock that Apache Kafka takes on a directory's `.lock`: `false` when another process holds it.
///
/// These are POSIX record locks, as `FileChannel.tryLock` in Java uses, so klamm and Kafka exclude each other. They
/// belong to the process: a process that may lock twice must remember what it holds (see `log::dirs`).
pub fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: all-zero is a valid `flock`; the fields that matter are set below.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: `lock` lives across the call and the descriptor is open for as long as `file` is borrowed.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EAGAIN) => Ok(false),
        _ => Err(error),
    }
}

/// The time slice that flush threads request: the least that Linux grants.
#[cfg(target_os = "linux")]
const TIME_SLICE_NS: u64 = 100_000;

/// Requests short time slices for the calling thread and the threads that it starts; a hint.
///
/// A flush thread works for some ten microseconds and then sleeps. Linux 6.12 and newer lets a thread that wakes up run
/// before one with a longer slice; its share of the processor does not grow. Otherwise it waits until the other
/// thread's slice ends. On a busy machine that takes milliseconds, once for the wake-up and once for the disk
/// (docs/decisions/0041).
#[cfg(target_os = "linux")]
pub fn request_short_time_slices() {
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: all-zero is a valid `sched_attr`.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: `attributes` has room for `size` bytes; thread 0 is the calling one.
    if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &mut attributes, size, 0) } != 0 {
        return;
    }
    // A process with another scheduling policy has already chosen its time slices.
    if attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.sched_runtime = TIME_SLICE_NS;
        // SAFETY: `attributes` lives across the call.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attributes, 0) };
    }
}

/// Other systems have no such setting.
#[cfg(not(target_os = "linux"))]
pub fn request_short_time_slices() {}

/// The number of descriptors that this process may have open.
pub fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 { limit.rlim_cur } else { 256 }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn cached_bytes_are_read_or_declined() {
        let mut file = tempfile::tempfile().expect("temporary file");
        file.write_all(b"0123456789").expect("write");
        let mut buffer = [0u8; 4];
        if let Some(read) = read_if_cached(&file, &mut buffer, 3).expect("read") {
            assert_eq!(&buffer[..read], &b"3456"[..read]);
        }
        start_write_back(&file, 0, 10);
        sync_file_system(&file).expect("syncfs");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn short_time_slices_change_nothing_else() {
        let attributes = || {
            // SAFETY: all-zero is valid, and the call writes at most the given size.
            unsafe {
                let mut attributes: libc::sched_attr = std::mem::zeroed();
                let size = size_of_val(&attributes);
                assert_eq!(libc::syscall(libc::SYS_sched_getattr, 0, &mut attributes, size, 0), 0);
                attributes
            }
        };
        let (before, after) = std::thread::spawn(move || {
            // SAFETY: the calls take no pointer. Lowering the priority needs no permission.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as u32, 5) };
            let before = attributes();
            request_short_time_slices();
            (before, attributes())
        })
        .join()
        .expect("no panic");
        assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
        // An old kernel has no time slices per thread and ignores the request.
        assert!(before.sched_runtime == 0 || after.sched_runtime == TIME_SLICE_NS, "{}", after.sched_runtime);
    }

    #[test]
    fn the_lock_is_taken() {
        let file = tempfile::tempfile().expect("temporary file");
        assert!(try_lock(&file).expect("lock"));
        assert!(descriptor_limit() > 0);
    }
}
