//! Why a broker was not asked, or gave no answer that can be used.

use std::io;
use std::sync::Arc;

use klamm_base::ErrorCode;
use klamm_base::primitives::WireError;

use super::security::SecurityError;
use super::versions::NoCommonVersion;

#[derive(Clone, Debug, thiserror::Error)]
pub enum LinkError {
    #[error("cannot connect to {address}: {}", reason(.source))]
    Connect { address: String, source: Arc<io::Error> },
    #[error("the connection to {address} broke: {}", reason(.source))]
    Broken { address: String, source: Arc<io::Error> },
    /// As a listener does that wants another security.protocol, and a broker that is just being ended.
    #[error(
        "{address} closed the connection before it answered anything ({}); is {protocol} the security.protocol of its \
         listener{}?", reason(.source), .hint
    )]
    Unwelcome { address: String, source: Arc<io::Error>, protocol: &'static str, hint: &'static str },
    #[error("{address} did not answer {what} within {after_ms} ms")]
    Late { address: String, what: &'static str, after_ms: u128 },
    #[error("{address} answered {what} with what is no such answer: {source}")]
    Malformed { address: String, what: &'static str, source: WireError },
    #[error(
        "{address} announced an answer of {len} bytes: it does not speak Kafka's protocol, or not without TLS \
         (security.protocol=SSL or SASL_SSL)"
    )]
    TooLong { address: String, len: i32 },
    #[error("{address} answered request {found} where {expected} was asked: it does not speak Kafka's protocol")]
    OutOfTurn { address: String, expected: i32, found: i32 },
    #[error("{address} answered request {found}, which was not sent: it does not speak Kafka's protocol")]
    Unasked { address: String, found: i32 },
    #[error("{address} cannot be asked: {source}")]
    Version { address: String, source: NoCommonVersion },
    #[error("{address} refused to say what it speaks: {code}")]
    Refused { address: String, code: ErrorCode },
    #[error("{address} cannot be talked to: {source}")]
    Security { address: String, source: Box<SecurityError> },
}

impl LinkError {
    /// Of a connection that does not come about.
    pub fn connect(address: &str, error: io::Error) -> Self {
        Self::Connect { address: address.to_owned(), source: Arc::new(error) }
    }

    /// Of a connection that was there: what TLS or the system says.
    pub fn broken(address: &str, error: io::Error) -> Self {
        match SecurityError::of_stream(&error) {
            Some(error) => Self::security(address, error),
            None => Self::Broken { address: address.to_owned(), source: Arc::new(error) },
        }
    }

    pub fn security(address: &str, error: SecurityError) -> Self {
        Self::Security { address: address.to_owned(), source: Box::new(error) }
    }

    /// Whether another try may find another state of things.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Broken { .. } | Self::Unwelcome { .. } | Self::Late { .. } => true,
            Self::Security { source, .. } => source.is_passing(),
            _ => false,
        }
    }

    /// Whether nothing listens at the address.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Connect { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether one of both does not trust the other: then no other broker is asked either, as by Apache Kafka's clients.
    pub fn is_security(&self) -> bool {
        matches!(self, Self::Security { .. }) && !self.is_passing()
    }

    /// The protocol's code, where a broker told one, or there is one for it.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Security { source, .. } => source.code(),
            _ => None,
        }
    }
}

/// What the system says, without its number for it.
fn reason(error: &io::Error) -> String {
    let text = match error.kind() {
        io::ErrorKind::UnexpectedEof => "closed by the broker".to_owned(),
        _ => error.to_string(),
    };
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_owned())
}
