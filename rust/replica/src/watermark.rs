//! The high watermark of a leader (facts 6.5): the offset that every member of the ISR holds, never moving back.

/// What a leader knows of the replicas that count.
///
/// Invariants: `high_watermark` never falls; it never passes the own offset that was last given to
/// [`Watermark::advance`]; it stands still while the ISR is smaller than `min_isr`.
#[derive(Debug, Clone)]
pub struct Watermark {
    /// Followers that are in the ISR, with the offset up to which each is known to hold the log.
    followers: Vec<(i32, i64)>,
    min_isr: usize,
    high_watermark: i64,
}

impl Watermark {
    /// A leader that starts with `high_watermark`, the other members of its ISR and the effective min ISR
    /// (the smaller of min.insync.replicas and the number of replicas).
    pub fn new(high_watermark: i64, isr_followers: &[i32], min_isr: usize) -> Self {
        let followers = isr_followers.iter().map(|&id| (id, high_watermark)).collect();
        Self { followers, min_isr, high_watermark }
    }

    /// The offset below which every record is committed.
    #[inline]
    pub fn get(&self) -> i64 {
        self.high_watermark
    }

    /// Whether enough replicas are in sync for an acks=all append (KIP-966: and for the watermark to move).
    pub fn has_min_isr(&self) -> bool {
        self.followers.len() + 1 >= self.min_isr
    }

    /// The topic's min.insync.replicas changed.
    pub fn set_min_isr(&mut self, min_isr: usize) {
        self.min_isr = min_isr;
    }

    /// A follower of the ISR fetched from `offset`: it holds everything below.
    #[inline]
    pub fn on_follower(&mut self, id: i32, offset: i64) {
        if let Some(entry) = self.followers.iter_mut().find(|entry| entry.0 == id) {
            entry.1 = offset;
        }
    }

    /// Moves up to what all hold, given the leader's own offset (flushed, or its log end). True if it moved.
    #[inline]
    pub fn advance(&mut self, own_offset: i64) -> bool {
        if !self.has_min_isr() {
            return false;
        }
        let held_by_all = self.followers.iter().fold(own_offset, |least, entry| least.min(entry.1));
        let moved = held_by_all > self.high_watermark;
        self.high_watermark = self.high_watermark.max(held_by_all);
        moved
    }

    /// The log was cut (a data loss that was accepted): the watermark may not stand above its end.
    pub fn cut(&mut self, log_end_offset: i64) {
        self.high_watermark = self.high_watermark.min(log_end_offset);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn alone_it_is_the_own_offset() {
        let mut watermark = Watermark::new(3, &[], 1);
        assert!(watermark.advance(10));
        assert_eq!(watermark.get(), 10);
        assert!(!watermark.advance(10));
    }

    #[test]
    fn stands_still_below_min_isr() {
        let mut watermark = Watermark::new(0, &[], 2);
        assert!(!watermark.advance(10));
        assert!(!watermark.has_min_isr());
        watermark.set_min_isr(1);
        assert!(watermark.advance(10));
    }

    proptest! {
        #[test]
        fn equals_the_least_offset_and_never_falls(steps in prop::collection::vec((0i32..4, 0i64..1000), 1..100)) {
            let mut watermark = Watermark::new(0, &[1, 2, 3], 2);
            let mut held = [0i64; 4];
            for (replica, offset) in steps {
                let before = watermark.get();
                held[replica as usize] = offset;
                if replica > 0 {
                    watermark.on_follower(replica, offset);
                }
                watermark.advance(held[0]);
                let least = held.into_iter().min().expect("four replicas");
                prop_assert_eq!(watermark.get(), before.max(least));
            }
        }
    }
}
