//! Why a broker could not be reached, or returned no usable response.

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
    /// Typical of a listener that requires another security.protocol, and of a broker that is being stopped.
    #[error(
        "{address} closed the connection before it answered anything ({}); is {protocol} the security.protocol of its \
         listener{}?", reason(.source), .hint
    )]
    Unwelcome { address: String, source: Arc<io::Error>, protocol: &'static str, hint: &'static str },
    #[error("{address} did not answer {what} within {after_ms} ms")]
    Late { address: String, what: &'static str, after_ms: u128 },
    #[error("{address} sent an invalid {what} response: {source}")]
    Malformed { address: String, what: &'static str, source: WireError },
    #[error(
        "{address} announced an answer of {len} bytes: it does not speak Kafka's protocol, or not without TLS \
         (security.protocol=SSL or SASL_SSL)"
    )]
    TooLong { address: String, len: i32 },
    #[error("{address} answered request {found} instead of {expected}: it does not speak Kafka's protocol")]
    OutOfTurn { address: String, expected: i32, found: i32 },
    #[error("{address} answered request {found}, which was not sent: it does not speak Kafka's protocol")]
    Unasked { address: String, found: i32 },
    #[error("{address} cannot be used: {source}")]
    Version { address: String, source: NoCommonVersion },
    #[error("{address} rejected the ApiVersions request: {code}")]
    Refused { address: String, code: ErrorCode },
    #[error("cannot establish a trusted connection to {address}: {source}")]
    Security { address: String, source: Box<SecurityError> },
}

impl LinkError {
    /// For a connection that could not be made.
    pub fn connect(address: &str, error: io::Error) -> Self {
        Self::Connect { address: address.to_owned(), source: Arc::new(error) }
    }

    /// For an existing connection: the error of TLS or of the operating system.
    pub fn broken(address: &str, error: io::Error) -> Self {
        match SecurityError::of_stream(&error) {
            Some(error) => Self::security(address, error),
            None => Self::Broken { address: address.to_owned(), source: Arc::new(error) },
        }
    }

    pub fn security(address: &str, error: SecurityError) -> Self {
        Self::Security { address: address.to_owned(), source: Box::new(error) }
    }

    /// Whether a retry may succeed.
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

    /// Whether authentication or trust failed: then no other broker is tried, as in Apache Kafka's clients.
    pub fn is_security(&self) -> bool {
        matches!(self, Self::Security { .. }) && !self.is_passing()
    }

    /// The protocol's error code, if a broker returned one or one corresponds to the error.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Security { source, .. } => source.code(),
            _ => None,
        }
    }
}

/// The operating system's description, without its error number.
fn reason(error: &io::Error) -> String {
    let text = match error.kind() {
        io::ErrorKind::UnexpectedEof => "closed by the broker".to_owned(),
        _ => error.to_string(),
    };
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_owned())
}
