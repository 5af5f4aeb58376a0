//! The events of an event loop's channels; a descriptor becomes readable when there are some.

use std::io;
use std::os::fd::RawFd;

use klamm_base::Inbox;

use super::channel::ChannelEvent;

/// Events of any number of channels, each with the channel's id, in order.
pub struct ChannelQueue {
    events: Inbox<Vec<(u64, ChannelEvent)>>,
    fd: RawFd,
}

impl ChannelQueue {
    pub fn new() -> io::Result<Self> {
        let events = Inbox::new(Vec::new())?;
        let fd = events.fd().expect("it is never closed");
        Ok(Self { events, fd })
    }

    /// Readable while there are events.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// The events since the last call.
    pub fn take(&self) -> Vec<(u64, ChannelEvent)> {
        self.events.take(std::mem::take)
    }

    pub(super) fn push(&self, channel: u64, event: ChannelEvent) {
        self.events.change(|events| events.push((channel, event)));
    }
}

impl std::fmt::Debug for ChannelQueue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ChannelQueue").field("fd", &self.fd()).finish_non_exhaustive()
    }
}
