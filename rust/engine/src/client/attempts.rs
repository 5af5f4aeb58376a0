//! Whether and when to try again.

use super::link_error::LinkError;
use crate::ErrorCode;

/// Why a try came to nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{}{}", .0, hint_of(*.0))]
    Code(ErrorCode),
    #[error("it has {count} partitions, numbered from 0")]
    NoSuchPartition { count: usize },
    #[error("the answer leaves out what was asked for")]
    LeftOut,
    #[error("the brokers have no transactions; klamm's have none yet, Apache Kafka's do")]
    NoTransactions,
}

/// The way out, for those errors that people meet.
fn hint_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => " (the cluster has no such topic: check its name, or create it)",
        ErrorCode::UNKNOWN_TOPIC_ID => " (the topic was deleted, or made anew under its name)",
        ErrorCode::INVALID_TOPIC_EXCEPTION => " (that can be no name of a topic)",
        ErrorCode::TOPIC_AUTHORIZATION_FAILED => " (an ACL must allow it)",
        ErrorCode::MESSAGE_TOO_LARGE => {
            " (the topic's max.message.bytes is smaller than the batch: lower batch.size, or raise it)"
        }
        ErrorCode::PRODUCER_FENCED | ErrorCode::INVALID_PRODUCER_EPOCH => {
            " (another producer has the same transactional.id: only the newest may go on)"
        }
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode::UNKNOWN_PRODUCER_ID => {
            " (the partition lacks records that were acknowledged, or forgot the producer)"
        }
        ErrorCode::INVALID_TRANSACTION_TIMEOUT => {
            " (transaction.timeout.ms is above the brokers' transaction.max.timeout.ms: lower it)"
        }
        ErrorCode::LEADER_NOT_AVAILABLE => " (nobody leads the partition: are the brokers that hold it up?)",
        ErrorCode::UNSUPPORTED_VERSION => " (the broker is too old for it)",
        _ => "",
    }
}

/// What may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// To learn anew who leads, then try again.
    Refresh,
    /// To try again after a while.
    Wait,
    /// The same, but soon it is taken for the truth.
    WaitShortly,
    /// Nothing: the caller must know.
    None,
}

impl Fault {
    /// What Apache Kafka's clients do about it.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Link(error) if error.is_passing() => Remedy::Refresh,
            Self::Link(_) | Self::LeftOut | Self::NoTransactions => Remedy::None,
            Self::NoSuchPartition { .. } => Remedy::WaitShortly,
            Self::Code(code) => remedy_of(*code),
        }
    }
}

fn remedy_of(code: ErrorCode) -> Remedy {
    match code {
        ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::FENCED_LEADER_EPOCH
        | ErrorCode::LEADER_NOT_AVAILABLE
        | ErrorCode::REPLICA_NOT_AVAILABLE
        | ErrorCode::KAFKA_STORAGE_ERROR
        | ErrorCode::BROKER_NOT_AVAILABLE
        | ErrorCode::NETWORK_EXCEPTION
        | ErrorCode::INCONSISTENT_TOPIC_ID
        | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR => Remedy::Refresh,
        ErrorCode::UNKNOWN_LEADER_EPOCH
        | ErrorCode::OFFSET_NOT_AVAILABLE
        | ErrorCode::REQUEST_TIMED_OUT
        | ErrorCode::THROTTLING_QUOTA_EXCEEDED
        | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        | ErrorCode::COORDINATOR_NOT_AVAILABLE
        | ErrorCode::NOT_COORDINATOR
        | ErrorCode::CONCURRENT_TRANSACTIONS
        | ErrorCode::UNKNOWN_SERVER_ERROR => Remedy::Wait,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID => Remedy::WaitShortly,
        _ => Remedy::None,
    }
}

/// How patient a call is, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    pub timeout_ms: u64,
    pub backoff_ms: u64,
    pub backoff_max_ms: u64,
    /// Tries after the first one.
    pub retries: u32,
}

impl Patience {
    /// How long to wait before another try after so many failures, in ms: twice as long after each.
    pub fn backoff_after(&self, failures: u32) -> u64 {
        let doubled = self.backoff_ms.saturating_mul(1 << failures.min(16));
        doubled.min(self.backoff_max_ms.max(self.backoff_ms))
    }
}

/// How long something may be unknown that a broker may only not have heard of yet, in ms.
const UNKNOWN_MS: u64 = 1_500;
/// The same when it was known before.
const UNKNOWN_AGAIN_MS: u64 = 10_000;

/// The tries of one call.
#[derive(Debug)]
pub struct Attempts {
    patience: Patience,
    began_ms: u64,
    failures: u32,
    /// Since when what is asked for has been unknown without a break.
    unknown_since_ms: Option<u64>,
}

/// What follows a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Retry { after_ms: u64, refresh: bool },
    GiveUp { timed_out: bool },
}

impl Attempts {
    pub fn new(patience: Patience, now_ms: u64) -> Self {
        Self { patience, began_ms: now_ms, failures: 0, unknown_since_ms: None }
    }

    /// How long the call may still take.
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        self.patience.timeout_ms.saturating_sub(now_ms.saturating_sub(self.began_ms))
    }

    /// `was_known`: the topic was told of earlier.
    pub fn on_fault(&mut self, now_ms: u64, fault: &Fault, was_known: bool) -> Next {
        let remedy = fault.remedy();
        if remedy == Remedy::WaitShortly {
            let since = *self.unknown_since_ms.get_or_insert(now_ms);
            let bound = if was_known { UNKNOWN_AGAIN_MS } else { UNKNOWN_MS };
            if now_ms.saturating_sub(since) >= bound {
                return Next::GiveUp { timed_out: false };
            }
        } else {
            self.unknown_since_ms = None;
        }
        if remedy == Remedy::None {
            return Next::GiveUp { timed_out: false };
        }
        let after_ms = self.patience.backoff_after(self.failures);
        self.failures += 1;
        if self.failures > self.patience.retries || after_ms >= self.left_ms(now_ms) {
            return Next::GiveUp { timed_out: true };
        }
        Next::Retry { after_ms, refresh: remedy != Remedy::Wait }
    }
}
