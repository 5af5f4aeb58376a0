//! A SCRAM client (RFC 5802, RFC 7677) as a sequence of values: [`Scram`] creates the first message, and proves the
//! password in response to the server's first message; the result verifies the server's last message. Without channel
//! binding, as in Apache Kafka; names and passwords are not prepared (SASLprep), because Apache Kafka does not do it
//! either.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

use super::secret::Secret;

/// The hash function of a mechanism.
#[derive(Clone, Copy)]
pub struct Hash {
    digest: &'static digest::Algorithm,
    hmac: hmac::Algorithm,
    pbkdf2: pbkdf2::Algorithm,
}

impl Hash {
    pub fn sha_256() -> Self {
        Self { digest: &digest::SHA256, hmac: hmac::HMAC_SHA256, pbkdf2: pbkdf2::PBKDF2_HMAC_SHA256 }
    }

    pub fn sha_512() -> Self {
        Self { digest: &digest::SHA512, hmac: hmac::HMAC_SHA512, pbkdf2: pbkdf2::PBKDF2_HMAC_SHA512 }
    }

    /// For the test vectors of RFC 5802.
    #[cfg(test)]
    pub fn sha_1() -> Self {
        Self {
            digest: &digest::SHA1_FOR_LEGACY_USE_ONLY,
            hmac: hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            pbkdf2: pbkdf2::PBKDF2_HMAC_SHA1,
        }
    }

    pub(super) fn len(self) -> usize {
        self.digest.output_len()
    }

    pub(super) fn of(self, bytes: &[u8]) -> Vec<u8> {
        digest::digest(self.digest, bytes).as_ref().to_vec()
    }

    pub(super) fn signed(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.hmac, key), message).as_ref().to_vec()
    }

    /// SaltedPassword of RFC 5802.
    pub(super) fn salted(self, password: &str, salt: &[u8], iterations: NonZeroU32) -> Vec<u8> {
        let mut salted = vec![0; self.len()];
        pbkdf2::derive(self.pbkdf2, iterations, salt, password.as_bytes(), &mut salted);
        salted
    }
}

/// An error in the server's messages. Their text is not repeated, except for the error that they name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    #[error("its message {0} is not a valid SCRAM message")]
    Malformed(&'static str),
    #[error("it requests a SCRAM extension that is not supported")]
    Extension,
    #[error("its nonce does not begin with the one it was sent")]
    Nonce,
    #[error("its salt is empty")]
    Salt,
    #[error("it requests {0} iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed")]
    Iterations(u64),
    #[error("it says {0}")]
    Said(String),
    #[error("its signature does not prove that it knows the password")]
    Signature,
}

/// Fewer would let an impostor of the server guess passwords quickly; Apache Kafka's client rejects them too.
pub const ITERATIONS_MIN: u32 = 4_096;
/// A second of work; more would only occupy the client. Apache Kafka's brokers store at most 16 384.
pub const ITERATIONS_MAX: u32 = 1_000_000;
/// The longest accepted message.
const MESSAGE_BYTES_MAX: usize = 16_384;
/// base64 of "n,,": no channel binding, no authorization identity.
const NO_BINDING: &str = "biws";

/// A client that has sent nothing yet.
#[derive(Clone)]
pub struct Scram {
    hash: Hash,
    password: Secret,
    /// Printable, without a comma, unique.
    nonce: String,
    first_bare: String,
}

impl std::fmt::Debug for Scram {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Scram({})", self.first_bare)
    }
}

/// A client that has sent its proof and awaits the server's.
pub struct Proven {
    server_key: hmac::Key,
    auth_message: String,
}

impl Scram {
    pub fn new(hash: Hash, user: &str, password: Secret, nonce: String) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first_bare = format!("n={user},r={nonce}");
        Self { hash, password, nonce, first_bare }
    }

    /// The client's first message.
    pub fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.first_bare).into_bytes()
    }

    /// The client's last message, in response to the server's first one.
    pub fn prove(&self, server_first: &[u8]) -> Result<(Vec<u8>, Proven), ScramError> {
        let text = readable(server_first, "with salt and nonce")?;
        let asked = ServerFirst::parse(text)?;
        if !asked.nonce.starts_with(&self.nonce) || asked.nonce.len() == self.nonce.len() {
            return Err(ScramError::Nonce);
        }
        let without_proof = format!("c={NO_BINDING},r={}", asked.nonce);
        let auth_message = format!("{},{text},{without_proof}", self.first_bare);
        let salted = self.hash.salted(self.password.reveal(), &asked.salt, asked.iterations);
        let client_key = self.hash.signed(&salted, b"Client Key");
        let signature = self.hash.signed(&self.hash.of(&client_key), auth_message.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(one, other)| one ^ other).collect();
        let server_key = hmac::Key::new(self.hash.hmac, &self.hash.signed(&salted, b"Server Key"));
        let last = format!("{without_proof},p={}", STANDARD.encode(proof)).into_bytes();
        Ok((last, Proven { server_key, auth_message }))
    }
}

impl Proven {
    /// Whether the server's last message proves that it knows the password too.
    pub fn check(&self, server_last: &[u8]) -> Result<(), ScramError> {
        let what = "with its signature";
        let text = readable(server_last, what)?;
        let value = text.split(',').next().unwrap_or_default();
        if let Some(error) = value.strip_prefix("e=") {
            return Err(ScramError::Said(printable(error)));
        }
        let signature = value.strip_prefix("v=").and_then(|signature| STANDARD.decode(signature).ok());
        let signature = signature.ok_or(ScramError::Malformed(what))?;
        hmac::verify(&self.server_key, self.auth_message.as_bytes(), &signature).map_err(|_| ScramError::Signature)
    }
}

struct ServerFirst<'a> {
    nonce: &'a str,
    salt: Vec<u8>,
    iterations: NonZeroU32,
}

impl<'a> ServerFirst<'a> {
    fn parse(text: &'a str) -> Result<Self, ScramError> {
        let malformed = ScramError::Malformed("with salt and nonce");
        if text.starts_with("m=") {
            return Err(ScramError::Extension);
        }
        let mut fields = text.split(',');
        let mut field = |name| fields.next().and_then(|field| field.strip_prefix(name)).ok_or(malformed.clone());
        let (nonce, salt, iterations) = (field("r=")?, field("s=")?, field("i=")?);
        let salt = STANDARD.decode(salt).map_err(|_| malformed.clone())?;
        if salt.is_empty() {
            return Err(ScramError::Salt);
        }
        let asked: u64 = iterations.parse().map_err(|_| malformed)?;
        let done = u32::try_from(asked).ok().filter(|asked| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(asked));
        let iterations = done.and_then(NonZeroU32::new).ok_or(ScramError::Iterations(asked))?;
        Ok(Self { nonce, salt, iterations })
    }
}

fn readable<'a>(message: &'a [u8], what: &'static str) -> Result<&'a str, ScramError> {
    let text = std::str::from_utf8(message).ok().filter(|text| text.len() <= MESSAGE_BYTES_MAX);
    text.ok_or(ScramError::Malformed(what))
}

/// Text of an untrusted peer, made safe for display.
pub fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(200).collect()
}
