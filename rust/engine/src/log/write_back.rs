//! Which bytes of an active segment the system is asked to write back while nobody waits for a flush.
//!
//! Bytes are written back a second after they were appended, in steps of a tenth of a second's appends. So a burst goes at
//! the speed of memory, whatever its size: to write back at once costs a tenth of the CPU time of a produce, on the core
//! that its producer could use, and half a segment in one call stalls the appends to it. A steady load is written back as
//! evenly as it comes, so that the sync at the roll, which appends to the same file system may have to wait for, finds what
//! one second brought.

use std::collections::VecDeque;

/// Age from which on bytes are written back.
const AGE_MS: i64 = 1_000;
/// The time that one step covers.
const STEP_MS: i64 = 100;
/// Fewer bytes are not worth a call.
const BYTES_MIN: u64 = 8 << 20;

/// The progress of one segment's log file.
pub struct WriteBack {
    /// The system was asked to write back everything below this position.
    asked: u64,
    /// Everything below this position is old enough.
    old: u64,
    /// Times, and where the file ended then, ascending.
    ends: VecDeque<(i64, u64)>,
}

impl WriteBack {
    /// A file of which `size` bytes need no call.
    pub fn new(size: u64) -> Self {
        Self { asked: size, old: size, ends: VecDeque::new() }
    }

    /// The file ends at `end` after an append.
    pub fn on_append(&mut self, now_ms: i64, end: u64) {
        while let Some((_, old)) = self.ends.pop_front_if(|(at_ms, _)| now_ms.saturating_sub(*at_ms) >= AGE_MS) {
            self.old = self.old.max(old);
        }
        if self.ends.back().is_none_or(|(at_ms, _)| now_ms.saturating_sub(*at_ms) >= STEP_MS) {
            self.ends.push_back((now_ms, end));
        }
    }

    /// Whether there is enough to write back.
    pub fn is_due(&self) -> bool {
        self.old.saturating_sub(self.asked) >= BYTES_MIN
    }

    /// The range to write back, if there is enough; it counts as asked for then.
    pub fn take(&mut self) -> Option<(u64, u64)> {
        self.is_due().then(|| (std::mem::replace(&mut self.asked, self.old), self.old))
    }

    /// The file was cut to `size` bytes.
    pub fn cut_to(&mut self, size: u64) {
        self.asked = self.asked.min(size);
        self.old = self.old.min(size);
        self.ends.iter_mut().for_each(|(_, end)| *end = (*end).min(size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_burst_of_any_size_is_left_alone_for_a_second() {
        let mut file = WriteBack::new(0);
        for at_ms in 0..AGE_MS {
            file.on_append(at_ms, (at_ms as u64 + 1) * MIB);
            assert!(!file.is_due(), "{at_ms}");
        }
    }

    #[test]
    fn a_steady_load_is_written_back_evenly_and_never_twice() {
        let (mut file, mut until) = (WriteBack::new(0), 0);
        for at_ms in 0..10 * AGE_MS {
            let end = (at_ms as u64 + 1) * MIB;
            file.on_append(at_ms, end);
            if let Some((from, to)) = file.take() {
                assert_eq!(from, until);
                assert!(to - from <= (STEP_MS as u64 + 1) * MIB, "{from}..{to}");
                until = to;
            }
            assert!(end - until <= (AGE_MS + 2 * STEP_MS) as u64 * MIB, "{end}: {until}");
        }
    }

    #[test]
    fn little_is_collected_and_what_is_cut_is_forgotten() {
        let mut file = WriteBack::new(MIB);
        file.on_append(0, 8 * MIB);
        file.on_append(AGE_MS, 12 * MIB);
        assert_eq!(file.take(), None);
        file.cut_to(2 * MIB);
        file.on_append(2 * AGE_MS, 30 * MIB);
        assert_eq!(file.take(), None);
        file.on_append(3 * AGE_MS, 31 * MIB);
        assert_eq!(file.take(), Some((MIB, 30 * MIB)));
        assert!(file.ends.len() <= 2);
    }

    #[test]
    fn a_clock_that_was_set_back_delays_and_loses_nothing() {
        let mut file = WriteBack::new(0);
        file.on_append(1_000_000, 100 * MIB);
        file.on_append(0, 200 * MIB);
        assert_eq!(file.take(), None);
        file.on_append(1_000_000 + AGE_MS, 300 * MIB);
        assert_eq!(file.take(), Some((0, 100 * MIB)));
    }
}
