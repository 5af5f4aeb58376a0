//! When to ask the operating system to write back an active segment while no request waits for a flush.
//!
//! After half a segment, so that the sync at the roll, which may delay appends to the same file system, finds at most
//! that much; and not before that much has existed for a second. A burst thus runs at memory speed to its end:
//! writing back immediately costs a tenth of the CPU time of a produce, on a core that its producer could use. All of
//! it is written back with one call, because each call makes the file system's journal wait for the disk: small steps
//! under a steady load, ten a second, doubled the p99 of its acknowledgements on a busy disk.

/// Fewer bytes are not worth a call.
const BYTES_MIN: u64 = 8 << 20;
/// How long the bytes must exist first.
const DELAY_MS: i64 = 1_000;

/// The write-back progress of one segment's log file.
pub struct WriteBack {
    /// The operating system was asked to write back everything below this position.
    asked: u64,
    end: u64,
    /// When there were first enough bytes.
    enough_since_ms: Option<i64>,
    is_due: bool,
}

impl WriteBack {
    /// For a file whose first `size` bytes need no call.
    pub fn new(size: u64) -> Self {
        Self { asked: size, end: size, enough_since_ms: None, is_due: false }
    }

    /// Called after an append: the file of a segment of up to `segment_bytes` now ends at `end`.
    pub fn on_append(&mut self, now_ms: i64, end: u64, segment_bytes: u32) {
        self.end = end;
        if end.saturating_sub(self.asked) >= u64::from(segment_bytes / 2).max(BYTES_MIN) {
            let since_ms = *self.enough_since_ms.get_or_insert(now_ms);
            self.is_due = now_ms.saturating_sub(since_ms) >= DELAY_MS;
        }
    }

    /// Whether there is something to write back.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Takes the range to write back if it is due; it then counts as requested.
    pub fn take(&mut self) -> Option<(u64, u64)> {
        std::mem::take(&mut self.is_due).then(|| {
            self.enough_since_ms = None;
            (std::mem::replace(&mut self.asked, self.end), self.end)
        })
    }

    /// The file was truncated to `size` bytes.
    pub fn cut_to(&mut self, size: u64) {
        *self = Self::new(self.asked.min(size));
        self.end = size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SEGMENT: u32 = 1 << 30;

    #[test]
    fn a_burst_of_any_size_is_not_written_back_for_a_second() {
        let mut file = WriteBack::new(0);
        for at_ms in 0..DELAY_MS {
            file.on_append(at_ms, (at_ms as u64 + 512) * MIB, SEGMENT);
            assert!(!file.is_due(), "{at_ms}");
        }
    }

    #[test]
    fn a_steady_load_is_written_back_in_halves_of_a_segment() {
        let mut file = WriteBack::new(0);
        let mut asked = Vec::new();
        for at_ms in 1..10_240 {
            file.on_append(at_ms, at_ms as u64 * MIB / 10, SEGMENT);
            asked.extend(file.take());
        }
        assert_eq!(asked, [(0, 612 * MIB)]);
    }

    #[test]
    fn few_bytes_cause_no_call_and_truncated_ones_are_forgotten() {
        let mut file = WriteBack::new(MIB);
        file.on_append(0, 8 * MIB, 1 << 20);
        file.on_append(DELAY_MS, 8 * MIB, 1 << 20);
        assert_eq!(file.take(), None);
        file.on_append(DELAY_MS, 9 * MIB, 1 << 20);
        file.cut_to(2 * MIB);
        file.on_append(2 * DELAY_MS, 3 * MIB, 1 << 20);
        assert_eq!(file.take(), None);
        file.on_append(2 * DELAY_MS, 10 * MIB, 1 << 20);
        file.on_append(3 * DELAY_MS, 11 * MIB, 1 << 20);
        assert_eq!((file.take(), file.take()), (Some((MIB, 11 * MIB)), None));
    }
}
