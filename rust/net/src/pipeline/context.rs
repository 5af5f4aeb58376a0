//! What is known of a request besides its body.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use klamm_wire::api::Api;

use super::principal::Principal;
use crate::link::Link;
use crate::listener::Listener;

/// How long a request that names no time-out is worked on.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// What every step of the pipeline and every handler knows of a request besides its body.
pub struct RequestContext<'a> {
    pub api: &'static Api,
    pub version: i16,
    pub correlation_id: i32,
    pub client_id: Cow<'a, str>,
    pub listener: &'a Arc<Listener>,
    /// Its principal and address are the request's.
    pub connection: &'a Arc<Link>,
    /// When its last byte was received.
    pub arrived: Instant,
}

impl RequestContext<'_> {
    /// The principal of the connection; anonymous on a listener that does not authenticate, and before it has.
    pub fn principal(&self) -> &Principal {
        self.connection.principal().unwrap_or(&Principal::ANONYMOUS)
    }

    /// Where the client is.
    pub fn address(&self) -> IpAddr {
        self.connection.peer.ip().to_canonical()
    }

    /// When nothing more is tried for a request that names no time-out.
    pub fn deadline(&self) -> Instant {
        self.arrived + REQUEST_TIMEOUT
    }
}
