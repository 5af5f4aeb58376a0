//! Measured requests whose responses are being sent.

use std::collections::VecDeque;
use std::time::Instant;

use super::pipeline::{Measured, RequestMetrics};

/// In the order of their responses. Empty while nothing is measured.
#[derive(Default)]
pub struct Sending {
    /// The number of bytes that the connection has sent.
    sent: u64,
    /// Each request with the value of `sent` at which its response is complete.
    queue: VecDeque<(u64, Box<Measured>)>,
}

impl Sending {
    /// Adds a request: the last of `unsent` bytes is the last of its response.
    pub fn push(&mut self, measured: Box<Measured>, unsent: usize) {
        self.queue.push_back((self.sent + unsent as u64, measured));
    }

    /// Counts sent bytes and records the requests whose responses are complete.
    #[inline]
    pub fn note_sent(&mut self, bytes: usize, metrics: &RequestMetrics) {
        self.sent += bytes as u64;
        if !self.queue.is_empty() {
            self.record(metrics);
        }
    }

    fn record(&mut self, metrics: &RequestMetrics) {
        let now = Instant::now();
        while let Some((_, measured)) = self.queue.pop_front_if(|(end, _)| *end <= self.sent) {
            metrics.record(&measured, now);
        }
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }
}
