//! SASL over a connection: authenticates when it opens, and again before the session expires (KIP-368).

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use klamm_base::ErrorCode;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::Instant;

use super::connection::Connection;
use super::link_error::LinkError;
use super::messages::sasl::{SaslAuthenticateAnswer, SaslAuthenticateRequest, SaslHandshakeRequest};
use super::security::dialogue::Dialogue;
use super::security::scram::printable;
use super::security::{Credentials, SecurityError};

/// The share of a session after which it is renewed, in percent: the lowest that Apache Kafka's clients choose.
const RENEW_AFTER: u64 = 85;
const NONCE_BYTES: usize = 24;

impl Connection {
    /// Authenticates the client if the protocol includes SASL.
    pub(super) async fn authenticate(&mut self, until: Instant) -> Result<(), LinkError> {
        let security = self.security.clone();
        let Some(credentials) = &security.sasl else { return Ok(()) };
        let left = || until.saturating_duration_since(Instant::now());
        self.choose_mechanism(credentials, left()).await?;
        let began = Instant::now();
        let (mut dialogue, mut message) = Dialogue::begin(credentials, &nonce(&self.address)?);
        loop {
            let request = SaslAuthenticateRequest { message };
            let answer = self.ask(&request, left()).await?;
            if answer.error.is_error() {
                return Err(LinkError::security(&self.address, refusal(credentials, &answer)));
            }
            match dialogue.answer(&answer.message) {
                Ok(Some(next)) => message = next,
                Ok(None) => {
                    self.renew_at = renewal(began, answer.session_lifetime_ms);
                    return Ok(());
                }
                Err(source) => {
                    let (user, mechanism) = (credentials.user.clone(), credentials.mechanism.name());
                    return Err(LinkError::security(
                        &self.address,
                        SecurityError::Impostor { user, mechanism, source },
                    ));
                }
            }
        }
    }

    async fn choose_mechanism(&mut self, credentials: &Credentials, within: Duration) -> Result<(), LinkError> {
        let mechanism = credentials.mechanism.name();
        if self.versions.choose(&SaslHandshakeRequest { mechanism }).is_err() {
            return Err(LinkError::security(&self.address, SecurityError::NoSasl(self.without_sasl())));
        }
        let answer = self.ask(&SaslHandshakeRequest { mechanism }, within).await?;
        let error = match answer.error {
            ErrorCode::NONE => return Ok(()),
            ErrorCode::UNSUPPORTED_SASL_MECHANISM => {
                SecurityError::Mechanism { mechanism, offered: printable(&answer.mechanisms.join(", ")) }
            }
            // The listener authenticates in another way, or not at all.
            ErrorCode::ILLEGAL_SASL_STATE => SecurityError::NoSasl(self.without_sasl()),
            code => return Err(LinkError::Refused { address: self.address.clone(), code }),
        };
        Err(LinkError::security(&self.address, error))
    }

    /// The security protocol that corresponds to the expected one without SASL.
    fn without_sasl(&self) -> &'static str {
        if self.security.tls.is_some() { "SSL" } else { "PLAINTEXT" }
    }

    /// Re-authenticates over the same connection after most of the session has passed.
    pub(super) async fn renew_if_due(&mut self, within: Duration) -> Result<(), LinkError> {
        match self.renew_at {
            Some(at) if Instant::now() >= at => self.authenticate(Instant::now() + within).await,
            _ => Ok(()),
        }
    }
}

/// When to renew a session of this lifetime in ms; `None` if it does not expire.
fn renewal(began: Instant, session_lifetime_ms: i64) -> Option<Instant> {
    let lifetime_ms = u64::try_from(session_lifetime_ms).ok().filter(|lifetime_ms| *lifetime_ms > 0)?;
    began.checked_add(Duration::from_millis((lifetime_ms / 100).saturating_mul(RENEW_AFTER)))
}

fn refusal(credentials: &Credentials, answer: &SaslAuthenticateAnswer) -> SecurityError {
    let said = match answer.error_message.as_deref().map(printable) {
        // A malicious server may have received the password, and its message must not reveal it.
        Some(said) if !said.is_empty() && !said.contains(credentials.password.reveal()) => {
            format!(" (the broker says: {said})")
        }
        _ => format!(" ({})", answer.error),
    };
    let (user, mechanism) = (credentials.user.clone(), credentials.mechanism.name());
    SecurityError::Refused { user, mechanism, option: credentials.option, said }
}

/// A unique nonce for SCRAM.
fn nonce(address: &str) -> Result<String, LinkError> {
    let mut bytes = [0; NONCE_BYTES];
    let no_dice = |_| LinkError::security(address, SecurityError::Tls("the system gives no random numbers".to_owned()));
    SystemRandom::new().fill(&mut bytes).map_err(no_dice)?;
    Ok(STANDARD_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_renewed_before_it_ends() {
        let began = Instant::now();
        assert_eq!(renewal(began, 3_600_000), Some(began + Duration::from_secs(3_060)));
        assert_eq!(renewal(began, 0), None);
        assert_eq!(renewal(began, -1), None);
        assert!(renewal(began, i64::MAX).is_none_or(|at| at > began + Duration::from_secs(1 << 30)));
    }
}
