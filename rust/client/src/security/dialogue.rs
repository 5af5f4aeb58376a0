//! The messages of a client's authentication.

use super::options::{Credentials, Mechanism};
use super::scram::{Hash, Proven, Scram, ScramError};

/// One authentication.
pub struct Dialogue(Stage);

enum Stage {
    Plain,
    Asked(Scram),
    Proven(Proven),
    Over,
}

impl Dialogue {
    /// Starts a dialogue and returns the first message. `nonce`: printable, without a comma, unique.
    pub fn begin(credentials: &Credentials, nonce: &str) -> (Self, Vec<u8>) {
        let hash = match credentials.mechanism {
            Mechanism::Plain => {
                let message = format!("\0{}\0{}", credentials.user, credentials.password.reveal());
                return (Self(Stage::Plain), message.into_bytes());
            }
            Mechanism::ScramSha256 => Hash::sha_256(),
            Mechanism::ScramSha512 => Hash::sha_512(),
        };
        let scram = Scram::new(hash, &credentials.user, credentials.password.clone(), nonce.to_owned());
        let first = scram.first();
        (Self(Stage::Asked(scram)), first)
    }

    /// The next message after the server's; `None` when authentication is complete.
    pub fn answer(&mut self, said: &[u8]) -> Result<Option<Vec<u8>>, ScramError> {
        match std::mem::replace(&mut self.0, Stage::Over) {
            Stage::Asked(scram) => {
                let (message, proven) = scram.prove(said)?;
                self.0 = Stage::Proven(proven);
                Ok(Some(message))
            }
            Stage::Proven(proven) => proven.check(said).map(|()| None),
            Stage::Plain | Stage::Over => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::Secret;

    fn credentials(mechanism: Mechanism) -> Credentials {
        Credentials { mechanism, user: "me".to_owned(), password: Secret::new("x"), option: "sasl.password" }
    }

    #[test]
    fn plain_needs_one_message() {
        let (mut dialogue, first) = Dialogue::begin(&credentials(Mechanism::Plain), "abc");
        assert_eq!(first, b"\0me\0x");
        assert_eq!(dialogue.answer(b""), Ok(None));
    }

    #[test]
    fn scram_completes_only_after_the_servers_proof() {
        let (mut dialogue, first) = Dialogue::begin(&credentials(Mechanism::ScramSha256), "abc");
        assert_eq!(first, b"n,,n=me,r=abc");
        assert!(matches!(dialogue.answer(b"r=abcd,s=AAEC,i=4096"), Ok(Some(_))));
        assert_eq!(dialogue.answer(b""), Err(ScramError::Malformed("with its signature")));
    }
}
