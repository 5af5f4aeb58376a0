//! Produces that wait for the high watermark: entries on their partition, ordered by offset.

use std::collections::VecDeque;

use klamm_base::ErrorCode;

/// Called once, outside of the partition's lock.
pub type OnAck = Box<dyn FnOnce(ErrorCode) + Send>;

/// Acknowledgements that are due, with what to tell each.
#[must_use = "the producers wait for these"]
#[derive(Default)]
pub struct Due {
    code: Option<ErrorCode>,
    list: Vec<OnAck>,
}

impl Due {
    /// Tells everyone. Never call it with a partition's lock held: an answer may run at once.
    pub fn tell(self) {
        let code = self.code.unwrap_or(ErrorCode::NONE);
        for ack in self.list {
            ack(code);
        }
    }
}

/// The waiting acknowledgements of one partition, ascending by the offset each waits for.
#[derive(Default)]
pub struct Acks {
    waiting: VecDeque<(i64, OnAck)>,
}

impl Acks {
    /// Adds one that is due when the high watermark reaches `end_offset`.
    pub fn push(&mut self, end_offset: i64, ack: OnAck) {
        // Appends happen in offset order but two workers may register in the other: look from the back.
        let at = self.waiting.iter().rposition(|entry| entry.0 <= end_offset).map_or(0, |before| before + 1);
        self.waiting.insert(at, (end_offset, ack));
    }

    /// Those that `high_watermark` satisfies, to be told `code`.
    pub fn reached(&mut self, high_watermark: i64, code: ErrorCode) -> Due {
        let count = self.waiting.partition_point(|entry| entry.0 <= high_watermark);
        Due { code: Some(code), list: self.waiting.drain(..count).map(|entry| entry.1).collect() }
    }

    /// All of them, to be told `code`: the partition can no longer acknowledge.
    pub fn fail(&mut self, code: ErrorCode) -> Due {
        Due { code: Some(code), list: self.waiting.drain(..).map(|entry| entry.1).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn told_in_offset_order_and_only_what_is_reached() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut acks = Acks::default();
        for offset in [10, 30, 20] {
            let told = told.clone();
            acks.push(offset, Box::new(move |code| told.lock().expect("one thread").push((offset, code))));
        }
        acks.reached(20, ErrorCode::NONE).tell();
        assert_eq!(*told.lock().expect("one thread"), [(10, ErrorCode::NONE), (20, ErrorCode::NONE)]);
        acks.fail(ErrorCode::NOT_LEADER_OR_FOLLOWER).tell();
        assert_eq!(told.lock().expect("one thread")[2], (30, ErrorCode::NOT_LEADER_OR_FOLLOWER));
        assert!(acks.waiting.is_empty());
    }
}
