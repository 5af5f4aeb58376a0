//! The step in which a request is counted against its client's quotas, after it is answered (KIP-13, KIP-219).

use std::time::Duration;

use klamm_wire::api::Api;

use crate::link::Link;

/// What a request and its answer cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub request_bytes: usize,
    pub answer_bytes: usize,
}

/// The quotas of a node's clients.
#[derive(Debug, Default)]
pub enum Quotas {
    /// None is set.
    #[default]
    Unlimited,
    /// Every request of this API is throttled for so long.
    #[cfg(test)]
    Fixed(i16, Duration),
}

impl Quotas {
    /// Counts a request that was answered; for how long its connection takes no further one.
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
