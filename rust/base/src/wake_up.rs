//! A descriptor with which one thread wakes another that waits in an event loop: an `eventfd`, or a pipe where there is
//! none.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A descriptor that is readable while it is raised.
pub struct WakeUp {
    read: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
}

#[cfg(target_os = "linux")]
impl WakeUp {
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and has no other owner.
        Ok(Self { read: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    fn write_end(&self) -> RawFd {
        self.read.as_raw_fd()
    }
}

#[cfg(not(target_os = "linux"))]
impl WakeUp {
    pub fn new() -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for the two descriptors.
        if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptors were just created and have no other owner.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        for fd in ends {
            // SAFETY: the descriptor is open; the calls take no pointer.
            unsafe {
                libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
        Ok(Self { read, write })
    }

    fn write_end(&self) -> RawFd {
        self.write.as_raw_fd()
    }
}

impl WakeUp {
    /// Makes the descriptor readable.
    pub fn raise(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer is eight bytes long. A full counter or pipe is readable already, so failure changes nothing.
        unsafe { libc::write(self.write_end(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes the descriptor unreadable until it is raised again.
    pub fn lower(&self) {
        let mut buffer = [0u8; 64];
        // SAFETY: the buffer has the given length; the descriptor does not block.
        unsafe { libc::read(self.read.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    }
}

impl AsRawFd for WakeUp {
    fn as_raw_fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }
}
