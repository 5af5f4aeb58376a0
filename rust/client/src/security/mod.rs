//! TLS and SASL of a client (KIP-12, KIP-84, KIP-368, KIP-651), with the keys of Apache Kafka's clients.
//!
//! [`options`] parses the keys, with [`jaas`] and [`pem`] for their values; [`dialogue`] and [`scram`] produce the
//! messages, without a socket and with the nonce passed in; [`tls`] and [`transport`] move bytes. No secret is shown:
//! passwords and keys are [`Secret`]s, and no error repeats the invalid text.

pub mod dialogue;
mod error;
mod identity;
pub mod jaas;
mod options;
pub mod pem;
pub mod scram;
#[cfg(test)]
mod scram_tests;
mod secret;
mod tls;
mod transport;
mod trust;
mod verifier;

pub use error::SecurityError;
pub use options::{Credentials, Mechanism, Security};
pub use secret::Secret;
pub(super) use transport::{ReadHalf, Transport, WriteHalf};
