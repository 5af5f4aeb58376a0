//! The step that counts a request against its client's quotas after the response (KIP-13, KIP-219).

use std::time::Duration;

use klamm_wire::api::Api;

use crate::link::Link;

/// The cost of a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub request_bytes: usize,
    pub answer_bytes: usize,
}

/// The client quotas of a node.
#[derive(Debug, Default)]
pub enum Quotas {
    /// No quota is set.
    #[default]
    Unlimited,
    /// Every request of this API is throttled for this long.
    #[cfg(test)]
    Fixed(i16, Duration),
}

impl Quotas {
    /// Counts an answered request; returns how long its connection is muted.
    #[inline]
    pub fn count(&self, _connection: &Link, _api: &Api, _usage: Usage) -> Duration {
        match self {
            Self::Unlimited => Duration::ZERO,
            #[cfg(test)]
            Self::Fixed(key, throttle) => {
                if *key == _api.key {
                    *throttle
                } else {
                    Duration::ZERO
                }
            }
        }
    }
}
