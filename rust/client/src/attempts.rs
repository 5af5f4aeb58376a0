//! Decides whether and when to retry.

use klamm_base::{ErrorCode, Uuid};

use super::link_error::LinkError;

/// Why an attempt failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{}{}", .0, hint_of(*.0))]
    Code(ErrorCode),
    #[error("it has {count} partitions, numbered from 0")]
    NoSuchPartition { count: usize },
    #[error("the response lacks the requested topic or partition")]
    LeftOut,
    #[error("the topic with id {expected} was deleted, and another one with id {found} has its name")]
    AnotherTopic { expected: Uuid, found: Uuid },
    #[error("the brokers do not support transactions")]
    NoTransactions,
}

/// Advice for common errors.
fn hint_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => " (the cluster has no such topic: check its name, or create it)",
        ErrorCode::UNKNOWN_TOPIC_ID => " (the topic was deleted, or recreated under its name)",
        ErrorCode::INVALID_TOPIC_EXCEPTION => " (it is not a valid topic name)",
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
        ErrorCode::LEADER_NOT_AVAILABLE => " (the partition has no leader: are the brokers of its replicas running?)",
        ErrorCode::UNSUPPORTED_VERSION => " (the broker is too old for it)",
        _ => "",
    }
}

/// What may resolve a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Refresh the metadata, then retry.
    Refresh,
    /// Retry after a while.
    Wait,
    /// The same, but after a short time the fault counts as final.
    WaitShortly,
    /// Nothing: the caller receives the error.
    None,
}

impl Fault {
    /// Whether the connection was refused because nothing listens at the address.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Link(error) if error.is_refused())
    }

    /// The reaction of Apache Kafka's clients to this fault.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Link(error) if error.is_passing() => Remedy::Refresh,
            Self::Link(_) | Self::LeftOut | Self::NoTransactions => Remedy::None,
            // A broker with old metadata may still describe the deleted topic.
            Self::NoSuchPartition { .. } | Self::AnotherTopic { .. } => Remedy::WaitShortly,
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

/// How long and how often a call is retried. Times in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    pub timeout_ms: u64,
    pub backoff_ms: u64,
    pub backoff_max_ms: u64,
    /// Attempts after the first one.
    pub retries: u32,
    /// How long every bootstrap server may refuse connections before any broker has been reached.
    pub refused_ms: u64,
}

impl RetryPolicy {
    /// The backoff after this number of failures, in ms: it doubles with each.
    pub fn backoff_after(&self, failures: u32) -> u64 {
        let doubled = self.backoff_ms.saturating_mul(1 << failures.min(16));
        doubled.min(self.backoff_max_ms.max(self.backoff_ms))
    }
}

/// How long something may be unknown, in ms, because the broker may not have received the metadata yet.
const UNKNOWN_MS: u64 = 1_500;
/// The same if it was known before.
const UNKNOWN_AGAIN_MS: u64 = 10_000;

/// The attempts of one call.
#[derive(Debug)]
pub struct Attempts {
    retry_policy: RetryPolicy,
    began_ms: u64,
    failures: u32,
    /// Since when the requested topic or partition has been unknown without interruption.
    unknown_since_ms: Option<u64>,
    /// Since when all bootstrap servers have refused connections without interruption.
    refused_since_ms: Option<u64>,
}

/// What the client knew of the cluster when an attempt failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The topic, and the partition if one is requested, were in earlier metadata.
    pub topic: bool,
    /// A broker has answered this client before.
    pub cluster: bool,
}

/// The decision after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Retry { after_ms: u64, refresh: bool },
    GiveUp(GiveUpReason),
}

/// Why there is no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpReason {
    /// Another attempt would have the same result.
    Final,
    /// The call's time or number of attempts is exhausted.
    TimedOut,
    /// Nothing listens at the bootstrap servers.
    Refused,
}

impl Attempts {
    pub fn new(retry_policy: RetryPolicy, now_ms: u64) -> Self {
        Self { retry_policy, began_ms: now_ms, failures: 0, unknown_since_ms: None, refused_since_ms: None }
    }

    /// The time left for the call.
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        self.retry_policy.timeout_ms.saturating_sub(now_ms.saturating_sub(self.began_ms))
    }

    pub fn on_fault(&mut self, now_ms: u64, fault: &Fault, known: Known) -> Next {
        let remedy = fault.remedy();
        if fault.is_refused() && !known.cluster {
            let since = *self.refused_since_ms.get_or_insert(now_ms);
            if now_ms.saturating_sub(since) >= self.retry_policy.refused_ms {
                return Next::GiveUp(GiveUpReason::Refused);
            }
        } else {
            self.refused_since_ms = None;
        }
        if remedy == Remedy::WaitShortly {
            let since = *self.unknown_since_ms.get_or_insert(now_ms);
            let bound = if known.topic { UNKNOWN_AGAIN_MS } else { UNKNOWN_MS };
            if now_ms.saturating_sub(since) >= bound {
                return Next::GiveUp(GiveUpReason::Final);
            }
        } else {
            self.unknown_since_ms = None;
        }
        if remedy == Remedy::None {
            return Next::GiveUp(GiveUpReason::Final);
        }
        let after_ms = self.retry_policy.backoff_after(self.failures);
        self.failures += 1;
        if self.failures > self.retry_policy.retries || after_ms >= self.left_ms(now_ms) {
            return Next::GiveUp(GiveUpReason::TimedOut);
        }
        Next::Retry { after_ms, refresh: remedy != Remedy::Wait }
    }
}
