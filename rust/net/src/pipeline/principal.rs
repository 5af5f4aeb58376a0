//! The principal of a request: the identity of its connection after authentication.

use std::borrow::Cow;
use std::fmt;

/// A `KafkaPrincipal`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// `User`, unless a principal builder creates others.
    pub kind: Cow<'static, str>,
    pub name: Cow<'static, str>,
    /// Whether a delegation token authenticated it (KIP-48).
    pub is_token_authenticated: bool,
}

impl Principal {
    /// The principal of every connection on a listener without authentication.
    pub const ANONYMOUS: Self =
        Self { kind: Cow::Borrowed("User"), name: Cow::Borrowed("ANONYMOUS"), is_token_authenticated: false };
}

impl fmt::Display for Principal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.kind, self.name)
    }
}
