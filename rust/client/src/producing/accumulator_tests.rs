//! A broker with one partition that checks sequence numbers as Apache Kafka's does, and connections that lose
//! requests and responses.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use klamm_base::{ErrorCode, Uuid};
use proptest::prelude::*;

use super::super::attempts::{Fault, RetryPolicy};
use super::super::cluster::ClusterView;
use super::super::link_error::LinkError;
use super::super::messages::metadata::{BrokerAddress, MetadataAnswer, PartitionMetadata, TopicMetadata};
use super::super::messages::produce::ProducedPartition;
use super::accumulator::{Accumulator, ClosedBatch, IN_FLIGHT_MAX, Place, Send};

const POLICY: RetryPolicy =
    RetryPolicy { timeout_ms: 60_000, backoff_ms: 10, backoff_max_ms: 100, retries: 1_000_000, refused_ms: u64::MAX };
const DEADLINE_MS: u64 = 1_000_000;

fn view() -> ClusterView {
    let partition = |index| PartitionMetadata { error: ErrorCode::NONE, index, leader: 1, leader_epoch: 0 };
    let topic = TopicMetadata {
        error: ErrorCode::NONE,
        name: "t".to_owned(),
        id: Uuid::ZERO,
        is_internal: false,
        partitions: vec![partition(0), partition(1)],
    };
    let broker = BrokerAddress { id: 1, host: "b".to_owned(), port: 1 };
    let mut view = ClusterView::default();
    view.on_metadata(&MetadataAnswer { brokers: vec![broker], topics: vec![topic], ..MetadataAnswer::default() });
    view
}

fn place(partition: i32) -> Place {
    ("t".into(), partition)
}

/// A batch of one record that contains its sequence number.
fn batch(base_sequence: i32) -> ClosedBatch {
    let bytes = Bytes::copy_from_slice(&base_sequence.to_be_bytes());
    ClosedBatch { bytes, records: 1, deadline_ms: DEADLINE_MS }
}

fn accumulator(count: i32) -> Accumulator {
    let mut accumulator = Accumulator::new(POLICY, 1 << 20, false);
    (0..count).for_each(|sequence| accumulator.push(place(0), batch(sequence)));
    accumulator
}

fn answer(error: ErrorCode) -> Vec<ProducedPartition> {
    vec![ProducedPartition { topic: "t".into(), partition: 0, error, base_offset: 0, message: None }]
}

fn lost() -> LinkError {
    LinkError::Broken { address: "b:1".to_owned(), source: Arc::new(io::ErrorKind::ConnectionReset.into()) }
}

fn sequences(sends: &[Send]) -> Vec<i32> {
    let of = |send: &Send| i32::from_be_bytes(send.batches[0].2[..4].try_into().expect("four bytes"));
    sends.iter().map(of).collect()
}

#[test]
fn one_batch_is_in_flight_until_the_broker_knows_the_producer_then_five() {
    let (mut accumulator, view) = (accumulator(9), view());
    let first = accumulator.poll(0, &view).sends;
    assert_eq!(sequences(&first), [0]);
    assert!(accumulator.poll(0, &view).sends.is_empty());
    accumulator.on_answer(0, first[0].tag, &Ok(answer(ErrorCode::NONE)));
    let more = accumulator.poll(0, &view).sends;
    assert_eq!(sequences(&more), [1, 2, 3, 4, 5]);
    accumulator.on_answer(0, more[0].tag, &Ok(answer(ErrorCode::NONE)));
    assert_eq!(sequences(&accumulator.poll(0, &view).sends), [6]);
}

#[test]
fn partitions_of_a_broker_share_a_request() {
    let mut accumulator = accumulator(1);
    accumulator.push(place(1), batch(0));
    let sends = accumulator.poll(0, &view()).sends;
    assert_eq!(sends.len(), 1);
    assert_eq!(sends[0].batches.iter().map(|(_, partition, _)| *partition).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn after_a_fault_batches_are_resent_in_order_once_all_answers_have_arrived() {
    let (mut accumulator, view) = (accumulator(6), view());
    let first = accumulator.poll(0, &view).sends;
    accumulator.on_answer(0, first[0].tag, &Ok(answer(ErrorCode::NONE)));
    let sends = accumulator.poll(0, &view).sends;
    let doubtful = accumulator.on_answer(0, sends[0].tag, &Ok(answer(ErrorCode::NOT_LEADER_OR_FOLLOWER)));
    assert_eq!(doubtful.len(), 1);
    for send in &sends[1..] {
        assert!(accumulator.poll(1, &view).sends.is_empty(), "nothing overtakes");
        accumulator.on_answer(1, send.tag, &Ok(answer(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER)));
    }
    let todo = accumulator.poll(1, &view);
    assert!(todo.sends.is_empty());
    assert_eq!(todo.wake_at_ms, Some(11));
    assert_eq!(sequences(&accumulator.poll(11, &view).sends), [1, 2, 3, 4, 5]);
}

#[test]
fn a_final_error_fails_all_batches_and_is_reported_once() {
    let (mut accumulator, view) = (accumulator(4), view());
    accumulator.push(place(1), batch(0));
    let sends = accumulator.poll(0, &view).sends;
    accumulator.on_answer(0, sends[0].tag, &Ok(answer(ErrorCode::MESSAGE_TOO_LARGE)));
    accumulator.push(place(0), batch(4));
    let failure = accumulator.take_failure().expect("a failure");
    assert!(matches!(failure.fault, Fault::Code(ErrorCode::MESSAGE_TOO_LARGE)));
    assert_eq!((failure.place.1, failure.records), (0, 5), "one of the other partition was left out of the answer");
    assert!(accumulator.take_failure().is_none() && accumulator.has_lost() && accumulator.is_idle());
}

#[test]
fn an_unexplained_sequence_gap_is_a_failure() {
    let (mut accumulator, view) = (accumulator(1), view());
    let sends = accumulator.poll(0, &view).sends;
    accumulator.on_answer(0, sends[0].tag, &Ok(answer(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER)));
    assert!(accumulator.has_failure());
}

#[test]
fn expired_batches_fail_with_the_last_reason() {
    let mut accumulator = accumulator(3);
    let no_brokers = ClusterView::default();
    let todo = accumulator.poll(0, &no_brokers);
    assert_eq!((todo.refresh.len(), todo.wake_at_ms), (1, Some(DEADLINE_MS)));
    accumulator.on_unknown("t", &Fault::Link(lost()));
    accumulator.poll(DEADLINE_MS, &no_brokers);
    let failure = accumulator.take_failure().expect("a failure");
    assert!(failure.timed_out && matches!(failure.fault, Fault::Link(_)));
    assert_eq!(failure.records, 3);
}

#[test]
fn a_transaction_adds_its_partitions_first() {
    let mut accumulator = Accumulator::new(POLICY, 1 << 20, true);
    accumulator.push(place(0), batch(0));
    let todo = accumulator.poll(0, &view());
    assert!(todo.sends.is_empty() && todo.enlist.contains(&place(0)));
    assert!(accumulator.waits_for(&todo.enlist) && !accumulator.has_enlisted());
    accumulator.on_enlisted(&todo.enlist);
    assert_eq!(sequences(&accumulator.poll(0, &view()).sends), [0]);
    accumulator.end_transaction();
    assert!(!accumulator.has_enlisted());
}

/// The broker's log, and its state of the producer.
#[derive(Default)]
struct Broker {
    log: Vec<i32>,
}

impl Broker {
    fn append(&mut self, sequence: i32) -> ErrorCode {
        let next = self.log.last().map(|last| last + 1);
        if self.log.iter().rev().take(IN_FLIGHT_MAX).any(|known| *known == sequence) {
            return ErrorCode::DUPLICATE_SEQUENCE_NUMBER;
        }
        if next.is_some_and(|next| next != sequence) {
            return ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
        }
        self.log.push(sequence);
        ErrorCode::NONE
    }
}

/// What happens to a request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Fine,
    Refused,
    RequestLost,
    AnswerLost,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        4 => Just(Fate::Fine),
        1 => Just(Fate::Refused),
        1 => Just(Fate::RequestLost),
        1 => Just(Fate::AnswerLost),
    ];
    proptest::collection::vec(fate, 1..60)
}

proptest! {
    /// Whatever is lost, the log has every batch once and in order. After a loss everything later on that connection
    /// is lost too.
    #[test]
    fn nothing_is_lost_duplicated_or_out_of_order(count in 1..30i32, fates in fates()) {
        let (mut accumulator, view) = (accumulator(count), view());
        let mut broker = Broker::default();
        let mut fates = fates.into_iter();
        let mut now_ms = 0;
        while !accumulator.is_idle() {
            now_ms += 100;
            prop_assert!(now_ms < DEADLINE_MS && !accumulator.has_failure(), "{:?}", accumulator.take_failure());
            let mut sends: VecDeque<Send> = accumulator.poll(now_ms, &view).sends.into();
            prop_assert!(sends.len() <= IN_FLIGHT_MAX);
            let mut is_broken = false;
            while let Some(send) = sends.pop_front() {
                let fate = if is_broken { Fate::RequestLost } else { fates.next().unwrap_or(Fate::Fine) };
                let sequence = sequences(std::slice::from_ref(&send))[0];
                is_broken |= matches!(fate, Fate::RequestLost | Fate::AnswerLost);
                let outcome = match fate {
                    Fate::Fine => Ok(answer(broker.append(sequence))),
                    Fate::Refused => Ok(answer(ErrorCode::NOT_ENOUGH_REPLICAS)),
                    Fate::RequestLost => Err(lost()),
                    Fate::AnswerLost => {
                        broker.append(sequence);
                        Err(lost())
                    }
                };
                accumulator.on_answer(now_ms, send.tag, &outcome);
            }
        }
        prop_assert!(!accumulator.has_failure(), "{:?}", accumulator.take_failure());
        prop_assert_eq!(broker.log, (0..count).collect::<Vec<_>>());
    }
}
