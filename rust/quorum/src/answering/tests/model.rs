//! Any order of events, compared with a minimal model of the rules.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Append,
    Flush,
    /// A fetch of a voter or the broker; offset and known high watermark are distances from the log's end.
    Fetch {
        who: Index,
        distance: i64,
        knows: Option<i64>,
        max_wait_ms: i32,
    },
    RaiseHighWatermark {
        distance: i64,
    },
    TellVoters,
    TakeNoted,
    End,
    Begin,
    /// A waiting fetch reaches its deadline or gives up.
    Late(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fetch = (any::<Index>(), -1..4i64, prop::option::of(-1..5i64), prop_oneof![Just(0), Just(60_000)])
        .prop_map(|(who, distance, knows, max_wait_ms)| Step::Fetch { who, distance, knows, max_wait_ms });
    let step = prop_oneof![
        4 => Just(Step::Append),
        2 => Just(Step::Flush),
        9 => fetch,
        1 => (0..4i64).prop_map(|distance| Step::RaiseHighWatermark { distance }),
        2 => Just(Step::TellVoters),
        1 => Just(Step::TakeNoted),
        1 => Just(Step::End),
        2 => Just(Step::Begin),
        2 => any::<Index>().prop_map(Step::Late),
    ];
    prop::collection::vec(step, 1..60)
}

/// A waiting fetch.
struct Parked {
    waiting: Waiting,
    bell: Arc<Bell>,
    /// The epoch in which it was recorded: each lease has another one.
    epoch: i32,
    slot: usize,
    offset: i64,
    /// The high watermark that it knows.
    high_watermark: i64,
}

struct Model {
    scene: Scene,
    is_led: bool,
    epoch: i32,
    start: i64,
    end: i64,
    flushed: i64,
    high_watermark: i64,
    voters_high_watermark: i64,
    counts_itself: bool,
    /// The known end offset of each voter except for the leader.
    voters: Vec<i64>,
    fetches: Vec<(usize, i64, i64)>,
    is_raised: bool,
    parked: Vec<Parked>,
}

impl Model {
    fn new(voters: usize, counts_itself: bool) -> Self {
        Self {
            scene: Scene::idle(),
            is_led: false,
            epoch: EPOCH,
            start: START,
            end: END,
            flushed: FLUSHED,
            high_watermark: START - 1,
            voters_high_watermark: START - 1,
            counts_itself,
            voters: vec![START; voters],
            fetches: Vec::new(),
            is_raised: false,
            parked: Vec::new(),
        }
    }

    /// The largest offset that a majority has, if it is committed.
    fn commit(&mut self) -> bool {
        let own = self.counts_itself.then_some(self.flushed);
        let all: Vec<i64> = self.voters.iter().copied().chain(own).collect();
        let have = |offset: i64| all.iter().filter(|has| **has >= offset).count();
        let best = all.iter().copied().filter(|offset| 2 * have(*offset) > all.len()).max();
        let committed = best.filter(|offset| self.is_led && *offset > self.start.max(self.high_watermark));
        self.high_watermark = committed.unwrap_or(self.high_watermark);
        self.is_raised |= committed.is_some();
        committed.is_some()
    }

    fn has_more(&self, slot: usize, offset: i64) -> bool {
        offset < if slot < self.voters.len() { self.end } else { self.high_watermark }
    }

    /// Whether a waiting or arriving fetch is answered.
    fn is_due(&self, slot: usize, offset: i64, knows: i64) -> bool {
        let high_watermark = if slot < self.voters.len() { self.voters_high_watermark } else { self.high_watermark };
        high_watermark > knows || self.has_more(slot, offset)
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Append => {
                self.scene.append_in(self.epoch);
                self.end += 1;
            }
            Step::Flush => {
                self.scene.flush();
                self.flushed = self.end;
                self.commit();
            }
            Step::Fetch { who, distance, knows, max_wait_ms } => {
                let slot = who.index(self.voters.len() + 1);
                let id = if slot < self.voters.len() { slot as i32 + 2 } else { BROKER };
                let high_watermark = knows.map(|distance| self.end - distance);
                let (epoch, offset, max_wait_ms) = (self.epoch, self.end - distance, *max_wait_ms);
                let fetch = Fetch { epoch, last_epoch: epoch, offset, high_watermark, max_wait_ms, ..FETCH.of(id) };
                self.fetch(slot, fetch)?;
            }
            Step::RaiseHighWatermark { distance } => {
                self.scene.answering.raise_high_watermark(self.end - distance);
                if self.is_led {
                    self.high_watermark = self.high_watermark.max(self.end - distance);
                }
            }
            Step::TellVoters => {
                self.scene.answering.notify_voters();
                self.voters_high_watermark = self.high_watermark;
            }
            Step::TakeNoted => {
                let fetches = self.scene.answering.take_fetches();
                self.check_fetches(&fetches)?;
            }
            Step::End => self.end()?,
            Step::Begin => {
                self.end()?;
                self.begin();
            }
            Step::Late(which) if !self.parked.is_empty() => {
                let late = self.parked.swap_remove(which.index(self.parked.len()));
                let looked = late.waiting.look(true);
                match self.is_led && late.epoch == self.epoch {
                    true => self.check_answer(late.offset, looked)?,
                    false => prop_assert!(matches!(looked, Looked::Outside)),
                }
            }
            Step::Late(_) => {}
        }
        Ok(())
    }

    fn begin(&mut self) {
        (self.epoch, self.start) = (self.epoch + 1, self.end);
        let ids = 2..2 + self.voters.len() as i32;
        self.scene.begin(Lead {
            epoch: self.epoch,
            start_offset: self.start,
            high_watermark: self.high_watermark,
            voters: ids.zip(self.voters.iter().copied()).collect(),
            counts_itself: self.counts_itself,
            ..lead()
        });
        (self.is_led, self.voters_high_watermark) = (true, self.high_watermark);
    }

    fn end(&mut self) -> Result<(), TestCaseError> {
        let fetches = self.scene.answering.end();
        self.is_led = false;
        self.check_fetches(&fetches)
    }

    fn fetch(&mut self, slot: usize, fetch: Fetch) -> Result<(), TestCaseError> {
        let bell = Arc::default();
        let taken = self.scene.take_body(18, &fetch.body(18), &bell);
        if !self.is_led || fetch.offset <= self.start || fetch.offset > self.end {
            prop_assert_eq!(what(&taken), "is left outside");
            return Ok(());
        }
        self.fetches.push((slot, fetch.offset, self.end));
        if let Some(offset) = self.voters.get_mut(slot) {
            *offset = fetch.offset;
        }
        self.commit();
        let high_watermark = fetch.high_watermark.map_or(self.high_watermark, |knows| knows.min(self.high_watermark));
        let is_due = fetch.max_wait_ms == 0 || self.is_due(slot, fetch.offset, high_watermark);
        match taken {
            Taken::Answered(body) if is_due => self.check_answer(fetch.offset, Looked::Answered(body)),
            Taken::Waits(waiting) if !is_due => {
                let (epoch, offset) = (self.epoch, fetch.offset);
                self.parked.push(Parked { waiting, bell, epoch, slot, offset, high_watermark });
                Ok(())
            }
            taken => Err(TestCaseError::fail(format!("it {} although due: {is_due}", what(&taken)))),
        }
    }

    fn check_answer(&self, offset: i64, looked: Looked) -> Result<(), TestCaseError> {
        let answer = answered(looked);
        let (high_watermark, leader) = (self.high_watermark, (1, self.epoch));
        let records = match offset < self.end {
            true => self.scene.log.read(offset, 1 << 20).expect("read"),
            false => Vec::new(),
        };
        prop_assert_eq!(answer, Answer { high_watermark, log_start_offset: 0, records, leader });
        Ok(())
    }

    fn check_fetches(&mut self, fetches: &[LeasedFetch]) -> Result<(), TestCaseError> {
        let fetches: Vec<_> = fetches.iter().map(|one| (one.slot, one.fetch_offset, one.end_offset)).collect();
        prop_assert_eq!(fetches, std::mem::take(&mut self.fetches));
        self.is_raised = false;
        Ok(())
    }

    /// Invariants that hold at any time.
    fn check(&self) -> Result<(), TestCaseError> {
        if self.is_led {
            prop_assert_eq!(self.scene.high_watermark(), self.high_watermark);
        }
        prop_assert_eq!(self.scene.is_raised(), self.is_raised);
        prop_assert_eq!(self.scene.waiter_count(), self.parked.len());
        for parked in &self.parked {
            let is_of_this_word = self.is_led && parked.epoch == self.epoch;
            let is_due = self.is_due(parked.slot, parked.offset, parked.high_watermark);
            let is_right = match parked.waiting.look(false) {
                Looked::Outside => !is_of_this_word,
                Looked::Waits => is_of_this_word && !is_due,
                Looked::Answered(_) => is_of_this_word && is_due,
            };
            prop_assert!(is_right, "the fetch at {} from slot {}", parked.offset, parked.slot);
            let has_to_look = !is_of_this_word || is_due;
            prop_assert!(!has_to_look || parked.bell.rings() > 0, "nothing woke the fetch at {}", parked.offset);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_order_of_events_follows_the_rules(steps in steps(), voters in 0..5usize, counts_itself: bool) {
        let mut model = Model::new(voters, counts_itself);
        model.begin();
        for step in &steps {
            model.step(step)?;
            model.check()?;
        }
    }
}
