//! What only Linux has, each with a portable twin, so that the rest of the engine builds elsewhere.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Asks the file system to write back `[position, position + len)` without waiting for it; a hint.
#[cfg(target_os = "linux")]
pub fn start_write_back(file: &File, position: u64, len: u64) {
    // SAFETY: the descriptor is open for as long as `file` is borrowed; the call touches no memory of ours.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), position as i64, len as i64, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Other systems decide themselves when to write back.
#[cfg(not(target_os = "linux"))]
pub fn start_write_back(_file: &File, _position: u64, _len: u64) {}

/// Makes all of the file system that holds `file` durable in one call; `false` when the system has no such call.
#[cfg(target_os = "linux")]
pub fn sync_file_system(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed.
    if unsafe { libc::syncfs(file.as_raw_fd()) } == 0 { Ok(true) } else { Err(io::Error::last_os_error()) }
}

/// No `syncfs` here: the caller syncs file by file.
#[cfg(not(target_os = "linux"))]
pub fn sync_file_system(_file: &File) -> io::Result<bool> {
    Ok(false)
}

/// Reads what the page cache holds at `position`: `None` when the disk would have to be waited for.
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

/// Nothing tells what is cached here, so every read counts as one that may wait.
#[cfg(not(target_os = "linux"))]
pub fn read_if_cached(_file: &File, _buffer: &mut [u8], _position: u64) -> io::Result<Option<usize>> {
    Ok(None)
}

/// Takes the advisory lock that Apache Kafka takes on a directory's `.lock`: `false` when another process has it.
///
/// POSIX record locks, as Java's `FileChannel.tryLock` uses, so that both systems exclude each other. They belong to the
/// process: whoever may lock twice in one process has to remember what it holds (see `log::dirs`).
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

/// The number of descriptors this process may have open.
pub fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 { limit.rlim_cur } else { 256 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

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

    #[test]
    fn the_lock_is_taken() {
        let file = tempfile::tempfile().expect("temporary file");
        assert!(try_lock(&file).expect("lock"));
        assert!(descriptor_limit() > 0);
    }
}
