//! The events of an event loop's channels; a descriptor becomes readable when there are some.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use parking_lot::Mutex;

use super::channel::ChannelEvent;
use klamm_base::WakeUp;

/// Events of any number of channels, each with the channel's id, in order.
pub struct ChannelQueue {
    events: Mutex<Vec<(u64, ChannelEvent)>>,
    wake_up: WakeUp,
}

impl ChannelQueue {
    pub fn new() -> io::Result<Self> {
        Ok(Self { events: Mutex::default(), wake_up: WakeUp::new()? })
    }

    /// Readable while there are events.
    pub fn fd(&self) -> RawFd {
        self.wake_up.as_raw_fd()
    }

    /// The events since the last call.
    pub fn take(&self) -> Vec<(u64, ChannelEvent)> {
        let mut events = self.events.lock();
        self.wake_up.lower();
        std::mem::take(&mut events)
    }

    pub(super) fn push(&self, channel: u64, event: ChannelEvent) {
        let mut events = self.events.lock();
        events.push((channel, event));
        // One wake-up for all events before the loop takes them.
        if events.len() == 1 {
            self.wake_up.raise();
        }
    }
}

impl std::fmt::Debug for ChannelQueue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ChannelQueue").field("fd", &self.fd()).finish_non_exhaustive()
    }
}
