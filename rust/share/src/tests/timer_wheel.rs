use std::collections::HashMap;

use proptest::prelude::*;

use crate::TimerWheel;

#[test]
fn a_key_has_its_earliest_deadline() {
    let mut wheel = TimerWheel::new(20, 0);
    wheel.schedule("a", 100);
    wheel.schedule("a", 500);
    wheel.schedule("b", 500);
    wheel.schedule("b", 100_000);
    wheel.schedule("c", 60);
    wheel.cancel("c");
    assert!(wheel.advance(99).is_empty());
    assert_eq!(wheel.advance(120), ["a"]);
    assert_eq!(wheel.advance(1000), ["b"]);
    assert!(wheel.is_empty());
}

proptest! {
    /// Nothing is due early, and nothing later than one tick after its deadline when time advances in small steps.
    #[test]
    fn keys_are_due_within_a_tick(steps in prop::collection::vec((0_i64..5, 0_i64..40_000, 0_i64..15), 1..300)) {
        let (tick_ms, mut now_ms) = (20, 7_000);
        let mut wheel = TimerWheel::new(tick_ms, now_ms);
        let mut expected: HashMap<i64, i64> = HashMap::new();
        for (key, delay_ms, step_ms) in steps.into_iter().chain(std::iter::repeat_n((9, 0, 15), 3000)) {
            if key != 9 {
                wheel.schedule(key, now_ms + delay_ms);
                let deadline_ms = expected.entry(key).or_insert(now_ms + delay_ms);
                *deadline_ms = (*deadline_ms).min(now_ms + delay_ms);
            }
            now_ms += step_ms;
            for due in wheel.advance(now_ms) {
                let deadline_ms = expected.remove(&due).expect("it was scheduled");
                prop_assert!(deadline_ms <= now_ms, "{due} at {now_ms}, before {deadline_ms}");
            }
            for (key, deadline_ms) in &expected {
                prop_assert!(*deadline_ms + 2 * tick_ms > now_ms, "{key} is late: {deadline_ms} at {now_ms}");
            }
        }
        prop_assert!(wheel.is_empty());
    }
}
