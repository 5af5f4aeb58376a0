//! TLS and SASL of a client (KIP-12, KIP-84, KIP-368, KIP-651), by the keys of Apache Kafka's clients.
//!
//! [`options`] reads the keys, and with [`jaas`] and [`pem`] what stands in them; [`dialogue`] and [`scram`] are what is
//! said, without a socket and with the nonce passed in; [`tls`] and [`transport`] move bytes. Nothing here shows a
//! secret: passwords and keys are [`Secret`]s, and no message repeats the text that was wrong in them.

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
