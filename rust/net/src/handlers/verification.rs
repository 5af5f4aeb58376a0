//! Transactional batches that may begin a transaction in a partition: before they are appended, the transaction
//! coordinator verifies that the partition is part of the transaction, or adds it (KIP-890).
//!
//! The request stays in the connection's input until the coordinator has answered, and holds back the requests after it, as in
//! Apache Kafka: a later batch of the producer must not overtake it.

use std::time::Instant;

use klamm_base::ErrorCode;
use klamm_log::{Claim, Guard};
use klamm_records::header::Header;
use klamm_wire::produce::{ProduceItem, ProduceRequest};

use crate::produced::first_batch;

/// From this version on producers send a partition's first batch without adding the partition to the transaction before it.
pub const ADDING_VERSION: i16 = 12;
/// Up to this version clients do not know TRANSACTION_ABORTABLE.
const NO_ABORTABLE_VERSION: i16 = 10;

/// A request whose transaction coordinator was asked.
pub struct Verification {
    pub handle: u64,
    /// When its partitions are refused if there is no answer.
    pub deadline: Instant,
    version: i16,
    asked: Vec<(usize, Guard)>,
    verified: Verified,
}

/// Why a batch is not appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotVerified {
    pub code: ErrorCode,
    pub message: Option<String>,
}

/// The guards of transactional batches, in the order of their partitions' entries, counted over all topics of the request.
#[derive(Debug, Default)]
pub struct Verified(Vec<(usize, Result<Guard, NotVerified>)>);

impl Verified {
    /// The guard of this batch; `None` if it has none.
    pub fn get(&self, at: usize) -> Option<Result<Guard, NotVerified>> {
        let found = self.0.binary_search_by_key(&at, |(of, _)| *of).ok()?;
        Some(self.0[found].1.clone())
    }

    /// Adds the result of an entry after all others.
    pub fn refuse(&mut self, at: usize, code: ErrorCode) {
        self.0.push((at, Err(NotVerified { code, message: None })));
    }
}

impl Verification {
    /// The batches in `asked` are verified; `verified` has the results that are known already.
    pub fn new(
        handle: u64,
        deadline: Instant,
        version: i16,
        asked: Vec<(usize, Guard)>,
        verified: Verified,
    ) -> Box<Self> {
        Box::new(Self { handle, deadline, version, asked, verified })
    }

    /// The coordinator answered with a code for each partition, or with one for all.
    pub fn answered(self, codes: &[ErrorCode]) -> Verified {
        let Self { version, asked, mut verified, .. } = self;
        let only = codes.first().filter(|_| codes.len() == 1);
        for (number, (at, guard)) in asked.into_iter().enumerate() {
            let code = only.or(codes.get(number)).copied().unwrap_or(ErrorCode::COORDINATOR_NOT_AVAILABLE);
            verified.0.push((at, refusal(code, version).map_or(Ok(guard), Err)));
        }
        verified.0.sort_unstable_by_key(|(at, _)| *at);
        verified
    }
}

/// The error of a batch whose coordinator answered `code`; `None` if it may be appended.
fn refusal(code: ErrorCode, version: i16) -> Option<NotVerified> {
    let told = match code {
        // A coordinator that cannot verify is older than the rule.
        ErrorCode::NONE | ErrorCode::UNSUPPORTED_VERSION => return None,
        ErrorCode::TRANSACTION_ABORTABLE if version <= NO_ABORTABLE_VERSION => ErrorCode::INVALID_TXN_STATE,
        ErrorCode::PRODUCER_FENCED => ErrorCode::INVALID_PRODUCER_EPOCH,
        ErrorCode::CLUSTER_AUTHORIZATION_FAILED => ErrorCode::INVALID_TXN_STATE,
        // The usual answer while the transaction before it completes.
        ErrorCode::CONCURRENT_TRANSACTIONS if version >= ADDING_VERSION => code,
        // Old clients may not repeat a batch after these, but do after this one, and keep their metadata.
        ErrorCode::CONCURRENT_TRANSACTIONS
        | ErrorCode::NETWORK_EXCEPTION
        | ErrorCode::REQUEST_TIMED_OUT
        | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        | ErrorCode::COORDINATOR_NOT_AVAILABLE
        | ErrorCode::NOT_COORDINATOR => ErrorCode::NOT_ENOUGH_REPLICAS,
        other => other,
    };
    let message = match told {
        ErrorCode::INVALID_TXN_STATE => Some("the partition was not added to the transaction".to_owned()),
        ErrorCode::NOT_ENOUGH_REPLICAS => Some(format!(
            "the transaction coordinator could not verify that the partition was added to the transaction: {code}"
        )),
        _ => None,
    };
    Some(NotVerified { code: told, message })
}

/// The producer of a batch whose transaction must be open or verified. Other batches of a client are refused when they are
/// validated.
pub fn claim_of(header: &Header<'_>) -> Option<Claim> {
    let is_claimed = header.is_transactional() && !header.is_control() && header.has_producer_id();
    (is_claimed && header.base_sequence() >= 0).then(|| Claim {
        producer_id: header.producer_id(),
        producer_epoch: header.producer_epoch(),
        base_sequence: header.base_sequence(),
    })
}

/// Whether the transactional batches of a request are those of one producer.
pub fn is_of_one_producer(request: &ProduceRequest, body: &[u8]) -> bool {
    let (mut walk, mut only) = (request.walk(), None);
    while let Some(item) = walk.next(body) {
        if let ProduceItem::Partition { records: Some(records), .. } = item
            && let Ok(Some((header, _))) = first_batch(&body[records])
            && header.is_transactional()
            && header.has_producer_id()
        {
            let producer = (header.producer_id(), header.producer_epoch());
            if *only.get_or_insert(producer) != producer {
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coordinators_errors_by_version_of_the_request() {
        use ErrorCode as E;
        let code = |code, version| refusal(code, version).map_or(E::NONE, |refusal| refusal.code);
        for (asked, until_10, of_11, from_12) in [
            (E::NONE, E::NONE, E::NONE, E::NONE),
            (E::TRANSACTION_ABORTABLE, E::INVALID_TXN_STATE, E::TRANSACTION_ABORTABLE, E::TRANSACTION_ABORTABLE),
            (E::PRODUCER_FENCED, E::INVALID_PRODUCER_EPOCH, E::INVALID_PRODUCER_EPOCH, E::INVALID_PRODUCER_EPOCH),
            (E::CONCURRENT_TRANSACTIONS, E::NOT_ENOUGH_REPLICAS, E::NOT_ENOUGH_REPLICAS, E::CONCURRENT_TRANSACTIONS),
            (E::COORDINATOR_LOAD_IN_PROGRESS, E::NOT_ENOUGH_REPLICAS, E::NOT_ENOUGH_REPLICAS, E::NOT_ENOUGH_REPLICAS),
            (E::COORDINATOR_NOT_AVAILABLE, E::NOT_ENOUGH_REPLICAS, E::NOT_ENOUGH_REPLICAS, E::NOT_ENOUGH_REPLICAS),
            (E::NOT_COORDINATOR, E::NOT_ENOUGH_REPLICAS, E::NOT_ENOUGH_REPLICAS, E::NOT_ENOUGH_REPLICAS),
            (E::NETWORK_EXCEPTION, E::NOT_ENOUGH_REPLICAS, E::NOT_ENOUGH_REPLICAS, E::NOT_ENOUGH_REPLICAS),
            (E::CLUSTER_AUTHORIZATION_FAILED, E::INVALID_TXN_STATE, E::INVALID_TXN_STATE, E::INVALID_TXN_STATE),
            (E::UNSUPPORTED_VERSION, E::NONE, E::NONE, E::NONE),
            (
                E::INVALID_PRODUCER_ID_MAPPING,
                E::INVALID_PRODUCER_ID_MAPPING,
                E::INVALID_PRODUCER_ID_MAPPING,
                E::INVALID_PRODUCER_ID_MAPPING,
            ),
            (
                E::UNKNOWN_TOPIC_OR_PARTITION,
                E::UNKNOWN_TOPIC_OR_PARTITION,
                E::UNKNOWN_TOPIC_OR_PARTITION,
                E::UNKNOWN_TOPIC_OR_PARTITION,
            ),
        ] {
            assert_eq!([10, 11, 12].map(|version| code(asked, version)), [until_10, of_11, from_12], "{asked}");
        }
    }
}
