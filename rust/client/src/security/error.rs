//! Security errors between client and broker, explained for the person who configured them.

use std::io;
use std::sync::Arc;

use klamm_base::ErrorCode;
use rustls::{AlertDescription, CertificateError, Error as TlsError};

use super::scram::ScramError;

/// The part of the message after the address.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SecurityError {
    #[error(
        "it closed the connection during the TLS handshake ({0}); if its listener speaks no TLS, security.protocol must \
         be PLAINTEXT or SASL_PLAINTEXT"
    )]
    Closed(Arc<io::Error>),
    #[error(
        "it answered the TLS handshake with something other than TLS: is its listener's security.protocol PLAINTEXT or SASL_PLAINTEXT?"
    )]
    NoTls,
    #[error(
        "its certificate is not signed by any of {trust}: set ssl.truststore.location to the PEM of the authority that signed it"
    )]
    UnknownIssuer { trust: Arc<str> },
    #[error("its certificate has expired{0}: the broker needs a new one")]
    Expired(String),
    #[error("its certificate is not valid yet{0}: compare the clocks of both machines")]
    NotYetValid(String),
    #[error(
        "its certificate is not for {host}{named}: connect by a name that it has among its subjectAltNames, or say \
         ssl.endpoint.identification.algorithm= (empty) to trust it under any name"
    )]
    WrongName { host: String, named: String },
    #[error(
        "its certificate is that of an authority (CA:TRUE), which no server may show: give the broker one that an \
         authority has signed, or a self-signed one with basicConstraints CA:FALSE"
    )]
    Authority,
    #[error("its certificate is refused: {0}")]
    Certificate(String),
    #[error(
        "it ended TLS with the alert {0}: look at the client's certificate (ssl.keystore.location, or \
         ssl.keystore.certificate.chain and ssl.keystore.key) and at ssl.enabled.protocols"
    )]
    Alert(String),
    #[error("TLS failed: {0}")]
    Tls(String),
    #[error("it does not offer SASL mechanism {mechanism}, only {offered}: set sasl.mechanism to one of these")]
    Mechanism { mechanism: &'static str, offered: String },
    #[error("its listener does not use SASL: is its security.protocol {0}?")]
    NoSasl(&'static str),
    #[error("it refuses user '{user}' by {mechanism}: look at {option}{said}")]
    Refused { user: String, mechanism: &'static str, option: &'static str, said: String },
    #[error(
        "it cannot prove by {mechanism} that it knows the password of user '{user}', so it is not trusted: {source}"
    )]
    Impostor { user: String, mechanism: &'static str, source: ScramError },
}

impl SecurityError {
    /// Whether a retry may succeed.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// The corresponding error code of the protocol, if there is one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Mechanism { .. } => Some(ErrorCode::UNSUPPORTED_SASL_MECHANISM),
            Self::NoSasl(_) => Some(ErrorCode::ILLEGAL_SASL_STATE),
            Self::Refused { .. } | Self::Impostor { .. } => Some(ErrorCode::SASL_AUTHENTICATION_FAILED),
            _ => None,
        }
    }

    /// Interprets an error of a TLS handshake with a host.
    pub(super) fn of_handshake(error: io::Error, host: &str, trust: &Arc<str>) -> Self {
        match tls_error(&error) {
            Some(error) => Self::of_tls(error, host, trust),
            None => Self::Closed(Arc::new(error)),
        }
    }

    /// Interprets an error after the handshake if it comes from TLS.
    pub fn of_stream(error: &io::Error) -> Option<Self> {
        match tls_error(error)? {
            // A broker that is being stopped sends this too.
            TlsError::AlertReceived(AlertDescription::InternalError | AlertDescription::UserCanceled) => None,
            TlsError::AlertReceived(alert) => Some(Self::Alert(format!("{alert:?}"))),
            other => Some(Self::Tls(other.to_string())),
        }
    }

    fn of_tls(error: &TlsError, host: &str, trust: &Arc<str>) -> Self {
        match error {
            TlsError::InvalidMessage(_) => Self::NoTls,
            TlsError::AlertReceived(alert) => Self::Alert(format!("{alert:?}")),
            TlsError::InvalidCertificate(why) => Self::of_certificate(why, host, trust),
            other => Self::Tls(other.to_string()),
        }
    }

    fn of_certificate(why: &CertificateError, host: &str, trust: &Arc<str>) -> Self {
        match why {
            CertificateError::UnknownIssuer => Self::UnknownIssuer { trust: trust.clone() },
            CertificateError::Expired => Self::Expired(String::new()),
            CertificateError::ExpiredContext { time, not_after } => {
                Self::Expired(format!(" {} days ago", time.as_secs().saturating_sub(not_after.as_secs()) / 86_400))
            }
            CertificateError::NotValidYet => Self::NotYetValid(String::new()),
            CertificateError::NotValidYetContext { time, not_before } => {
                Self::NotYetValid(format!(", but in {} s", not_before.as_secs().saturating_sub(time.as_secs())))
            }
            CertificateError::NotValidForName => Self::WrongName { host: host.to_owned(), named: String::new() },
            CertificateError::NotValidForNameContext { presented, .. } => {
                let named = match presented.as_slice() {
                    [] => " (it has no subjectAltName; a name in its subject does not count)".to_owned(),
                    names => {
                        format!(" (it is for {})", names.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", "))
                    }
                };
                Self::WrongName { host: host.to_owned(), named }
            }
            other if format!("{other:?}").contains("CaUsedAsEndEntity") => Self::Authority,
            other => Self::Certificate(other.to_string()),
        }
    }
}

fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

/// A name from a certificate without its type: `DnsName("kafka")` as `kafka`.
fn plain(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.map_or(name, |inner| inner.trim_matches('"'))
}
