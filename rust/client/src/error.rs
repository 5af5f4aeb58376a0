//! Errors of calls: what was requested, from which broker, why it failed, and advice.

use klamm_base::ErrorCode;
use klamm_records::RecordsError;

use super::attempts::Fault;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "cannot {what}: no answer within {timeout_ms} ms ({tries} tries), and last: {last}. \
         Check that the brokers of bootstrap.servers={bootstrap} run and can be reached from here, or raise {key}"
    )]
    TimedOut { what: Box<What>, bootstrap: String, timeout_ms: u64, tries: u32, key: &'static str, last: Box<Fault> },
    #[error(
        "cannot {what}: nothing listens at bootstrap.servers={bootstrap}, tried for {after_ms} ms ({last}). \
         Start the broker, or correct the address"
    )]
    Refused { what: Box<What>, bootstrap: String, after_ms: u64, last: Box<Fault> },
    #[error("cannot {what}: {source}")]
    Failed { what: Box<What>, source: Box<Fault> },
    #[error("{0}")]
    Invalid(String),
    #[error(
        "offset {offset} of {topic}-{partition} is out of range: the partition holds [{earliest}, {latest}). \
         Records before that were deleted by retention; later offsets were never written, or the topic was recreated"
    )]
    OffsetOutOfRange { topic: String, partition: i32, offset: i64, earliest: i64, latest: i64 },
    #[error("the batch at offset {offset} of {topic}-{partition} is damaged: {source}")]
    Damaged { topic: String, partition: i32, offset: i64, source: RecordsError },
    #[error(
        "{records} records were not delivered, the first of them to {topic}-{partition}: {source}{}{}",
        .message.as_ref().map_or(String::new(), |message| format!(" (the broker says: {message})")),
        if *.timed_out { "; raise delivery.timeout.ms if it only takes longer" } else { "" }
    )]
    NotDelivered {
        topic: String,
        partition: i32,
        records: u64,
        source: Box<Fault>,
        message: Option<String>,
        timed_out: bool,
    },
    #[error(
        "record {at} for {topic} takes {size} bytes, max.request.size allows {max}: raise it, and the topic's \
         max.message.bytes with it"
    )]
    RecordTooLarge { topic: String, at: usize, size: usize, max: usize },
    #[error("cannot {verb}: {why}")]
    State { verb: &'static str, why: &'static str },
    #[error("the client is closed")]
    Closed,
}

/// The operation and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct What {
    /// As in "cannot ...".
    pub verb: &'static str,
    pub topic: Option<String>,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
}

impl What {
    pub fn cluster(verb: &'static str) -> Self {
        Self { verb, topic: None, partition: None, offset: None }
    }

    pub fn topic(verb: &'static str, topic: &str) -> Self {
        Self { topic: Some(topic.to_owned()), ..Self::cluster(verb) }
    }

    pub fn partition(verb: &'static str, topic: &str, partition: i32) -> Self {
        Self { partition: Some(partition), ..Self::topic(verb, topic) }
    }

    pub fn at(self, offset: i64) -> Self {
        Self { offset: Some(offset), ..self }
    }
}

impl std::fmt::Display for What {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.verb)?;
        if let Some(topic) = &self.topic {
            write!(out, " {topic}")?;
        }
        if let Some(partition) = self.partition {
            write!(out, "-{partition}")?;
        }
        self.offset.map_or(Ok(()), |offset| write!(out, " at offset {offset}"))
    }
}

impl ClientError {
    /// Topic and partition, if the error concerns one.
    pub fn place(&self) -> (Option<&str>, Option<i32>) {
        match self {
            Self::TimedOut { what, .. } | Self::Refused { what, .. } | Self::Failed { what, .. } => {
                (what.topic.as_deref(), what.partition)
            }
            Self::OffsetOutOfRange { topic, partition, .. } | Self::Damaged { topic, partition, .. } => {
                (Some(topic), Some(*partition))
            }
            Self::NotDelivered { topic, partition, .. } => (Some(topic), Some(*partition)),
            Self::RecordTooLarge { topic, .. } => (Some(topic), None),
            Self::Invalid(_) | Self::State { .. } | Self::Closed => (None, None),
        }
    }

    /// Whether another topic has the name of the requested one.
    pub fn is_another_topic(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if matches!(**source, Fault::AnotherTopic { .. }))
    }

    /// Whether no broker supports the operation.
    pub fn lacks_transactions(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if matches!(**source, Fault::NoTransactions))
    }

    /// Whether authentication or trust between client and broker failed.
    pub fn is_security(&self) -> bool {
        let fault = match self {
            Self::Failed { source, .. } | Self::NotDelivered { source, .. } => source,
            _ => return false,
        };
        matches!(&**fault, Fault::Link(error) if error.is_security())
    }

    /// The protocol's error code, if a broker returned one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::TimedOut { last: fault, .. }
            | Self::Refused { last: fault, .. }
            | Self::Failed { source: fault, .. }
            | Self::NotDelivered { source: fault, .. } => match &**fault {
                Fault::Code(code) => Some(*code),
                Fault::NoSuchPartition { .. } => Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
                Fault::Link(error) => error.code(),
                Fault::AnotherTopic { .. } => Some(ErrorCode::UNKNOWN_TOPIC_ID),
                Fault::LeftOut | Fault::NoTransactions => None,
            },
            Self::OffsetOutOfRange { .. } => Some(ErrorCode::OFFSET_OUT_OF_RANGE),
            Self::Damaged { .. } => Some(ErrorCode::CORRUPT_MESSAGE),
            Self::RecordTooLarge { .. } => Some(ErrorCode::MESSAGE_TOO_LARGE),
            Self::Invalid(_) | Self::State { .. } | Self::Closed => None,
        }
    }
}
