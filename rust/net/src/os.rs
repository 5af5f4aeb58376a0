//! System calls of Linux that the network uses, each with a portable alternative.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
#[cfg(target_os = "linux")]
use std::sync::LazyLock;

/// Disables pacing for a connection within this host; a hint.
///
/// BBR, the default on many hosts, sets a timer for every segment, and the reader is woken as often. Within a host
/// there is no queue to keep short, and a fetch costs two or three times as much. Reno is always available, and any
/// user may select it.
#[cfg(target_os = "linux")]
pub fn send_unpaced(socket: RawFd) {
    const PLAIN: &[u8] = b"reno";
    // SAFETY: the name has the given length; the call reads it and nothing else.
    unsafe {
        let len = PLAIN.len() as libc::socklen_t;
        libc::setsockopt(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, PLAIN.as_ptr().cast(), len);
    }
}

/// Other systems do not pace.
#[cfg(not(target_os = "linux"))]
pub fn send_unpaced(_socket: RawFd) {}

/// Asks the system to wake waiters for a connection when `bytes` can be received, or at its end; a hint.
///
/// If that many bytes are there already, waiters are woken immediately. The buffer grows until they fit, up to half
/// of `net.ipv4.tcp_rmem`, unless its size was set; more than that is not waited for. This is true since Linux 4.18:
/// before that, waiters might never be woken, so the option is not set.
#[cfg(target_os = "linux")]
pub fn wake_at(socket: RawFd, bytes: usize) {
    static IS_SAFE: LazyLock<bool> = LazyLock::new(|| linux_version().is_some_and(|version| version >= (4, 18)));
    if *IS_SAFE {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the value has the given length and lives across the call.
        unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const bytes).cast(), len) };
    }
}

/// Other systems wake waiters for every byte.
#[cfg(not(target_os = "linux"))]
pub fn wake_at(_socket: RawFd, _bytes: usize) {}

/// The kernel version, like `(6, 12)`.
#[cfg(target_os = "linux")]
fn linux_version() -> Option<(u32, u32)> {
    // SAFETY: the structure is plain bytes, for which zero is a value; the call fills it and ends each with a zero byte.
    let name = unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        (libc::uname(&mut name) == 0).then_some(name)?
    };
    let release = name.release.map(|byte| byte as u8);
    let mut numbers =
        release.split(|byte| !byte.is_ascii_digit()).map(|number| str::from_utf8(number).ok()?.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Sends up to `len` bytes of `file` from `position` on to a socket without copying them; returns the number sent.
#[cfg(target_os = "linux")]
pub fn send_file(socket: RawFd, file: &File, position: u64, len: usize) -> io::Result<usize> {
    let mut offset = position as libc::off_t;
    // SAFETY: both descriptors are open for the length of the call and `offset` is a valid place to write to.
    let sent = unsafe { libc::sendfile(socket, file.as_raw_fd(), &mut offset, len) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Sends up to `len` bytes of `file` from `position` on to a socket through a buffer; returns the number sent.
#[cfg(not(target_os = "linux"))]
pub fn send_file(socket: RawFd, file: &File, position: u64, len: usize) -> io::Result<usize> {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; len.min(64 << 10)];
    let read = file.read_at(&mut buffer, position)?;
    // SAFETY: the buffer holds `read` bytes.
    let sent = unsafe { libc::send(socket, buffer.as_ptr().cast(), read, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Loads up to `len` bytes of `file` from `position` on into the page cache, blocking on the disk; returns the number
/// loaded.
///
/// They are sent nowhere, which takes a fifth of the CPU time of reading them into a buffer.
#[cfg(target_os = "linux")]
pub fn load(file: &File, position: u64, len: usize) -> io::Result<usize> {
    let nowhere = File::options().write(true).open("/dev/null")?;
    let mut loaded = 0;
    while loaded < len {
        match send_file(nowhere.as_raw_fd(), file, position + loaded as u64, len - loaded) {
            Ok(0) => break,
            Ok(more) => loaded += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(loaded)
}

/// Other systems have no way to do this without a buffer.
#[cfg(not(target_os = "linux"))]
pub fn load(_file: &File, _position: u64, _len: usize) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether all of `[position, position + len)` is in the page cache; `None` if the system cannot say.
#[cfg(target_os = "linux")]
pub fn is_cached(file: &File, position: u64, len: usize) -> Option<bool> {
    /// Since Linux 6.5; the same number on every architecture.
    const CACHESTAT: libc::c_long = 451;
    #[repr(C)]
    struct Range {
        position: u64,
        len: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Pages {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let range = Range { position, len: len as u64 };
    let mut pages = Pages::default();
    // SAFETY: the descriptor is open for as long as `file` is borrowed; both structures are laid out as the system call
    // has them and live across it.
    let result = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &range, &mut pages, 0) };
    // SAFETY: the call takes no pointer.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let last = position + (len as u64).saturating_sub(1);
    (result == 0).then(|| pages.cached > last / page_bytes - position / page_bytes)
}

#[cfg(not(target_os = "linux"))]
pub fn is_cached(_file: &File, _position: u64, _len: usize) -> Option<bool> {
    None
}

/// Whether the process can map this many more bytes under its current limits (`RLIMIT_AS`, strict overcommit).
pub fn has_address_space(bytes: usize) -> bool {
    // SAFETY: a new mapping of its own, at no given address, which is unmapped unchanged.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        let start = libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0);
        start != libc::MAP_FAILED && libc::munmap(start, bytes) == 0
    }
}

/// Blocks SIGPIPE in the calling thread: `sendfile` to a closed connection raises it, and has no flag against it. The
/// process's own handler is unchanged.
pub fn block_broken_pipe_signal() {
    // SAFETY: the set is initialized by the first call and lives across the others; nothing else is touched.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Sends bytes to a socket without blocking; `more` says that others follow immediately, so that a small piece may
/// wait.
pub fn send(socket: RawFd, bytes: &[u8], more: bool) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | if more { libc::MSG_MORE } else { 0 };
    #[cfg(not(target_os = "linux"))]
    let flags = libc::MSG_DONTWAIT | i32::from(more) * 0;
    // SAFETY: the buffer has the given length.
    let sent = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_connection_is_not_paced() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        send_unpaced(stream.as_raw_fd());
        let (mut name, mut len) = ([0u8; 16], 16 as libc::socklen_t);
        // SAFETY: the buffer has the given length, and both live across the call.
        let result = unsafe {
            let fd = stream.as_raw_fd();
            libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_mut_ptr().cast(), &mut len)
        };
        assert_eq!((result, &name[..5]), (0, &b"reno\0"[..]));
        // A hint: it has no effect on other sockets.
        send_unpaced(UdpSocket::bind("127.0.0.1:0").expect("a free port").as_raw_fd());
    }

    fn is_readable(stream: &std::net::TcpStream) -> bool {
        let mut poll = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd is passed.
        unsafe { libc::poll(&mut poll, 1, 100) == 1 }
    }

    #[test]
    fn a_waiter_is_woken_when_enough_bytes_arrive() {
        assert!(linux_version().is_some_and(|version| version >= (4, 18)), "{:?}", linux_version());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut sender = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (receiver, _) = listener.accept().expect("it connected");
        wake_at(receiver.as_raw_fd(), 300_000);
        sender.write_all(&[7; 100_000]).expect("an open connection");
        assert!(!is_readable(&receiver));
        wake_at(receiver.as_raw_fd(), 100_000);
        assert!(is_readable(&receiver));
        wake_at(receiver.as_raw_fd(), 300_000);
        sender.write_all(&[7; 200_000]).expect("an open connection");
        assert!(is_readable(&receiver));
        wake_at(receiver.as_raw_fd(), usize::MAX);
        assert!(!is_readable(&receiver));
        drop(sender);
        assert!(is_readable(&receiver), "the end is reported in any case");
    }

    #[test]
    fn the_page_cache_is_asked_page_by_page() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&[7; 100_000]).expect("room on the disk");
        // It was just written, so all of it is cached, and nothing after its end. An old kernel cannot say.
        for (position, len, cached) in [(0, 100_000, true), (50_000, 1, true), (4095, 2, true), (0, 200_000, false)] {
            assert!(is_cached(&file, position, len).is_none_or(|is_cached| is_cached == cached), "{position} {len}");
        }
    }

    #[test]
    fn what_the_page_cache_lost_is_loaded_up_to_the_files_end() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&[7; 3_000_000]).expect("room on the disk");
        file.sync_all().expect("a disk");
        // SAFETY: the descriptor is open.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(load(&file, 1_000_001, 1_500_000).expect("a file"), 1_500_000);
        assert!(is_cached(&file, 1_000_001, 1_500_000).is_none_or(|is_cached| is_cached));
        assert_eq!(load(&file, 2_999_990, 100).expect("a file"), 10);
        assert_eq!(load(&file, 4_000_000, 100).expect("a file"), 0);
    }
}
