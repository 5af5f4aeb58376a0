//! The properties of a request besides its body.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use klamm_wire::api::Api;

use super::principal::Principal;
use crate::link::Link;
use crate::listener::Listener;

/// How long a request without a timeout is processed.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The properties of a request besides its body, for every pipeline step and handler.
pub struct RequestContext<'a> {
    pub api: &'static Api,
    pub version: i16,
    pub correlation_id: i32,
    pub client_id: Cow<'a, str>,
    pub listener: &'a Arc<Listener>,
    /// The bytes of its frame, without the length.
    pub request_bytes: usize,
    /// Its principal and address are those of the request.
    pub connection: &'a Arc<Link>,
    /// When its last byte was received.
    pub arrived: Instant,
}

impl RequestContext<'_> {
    /// The principal of the connection; anonymous before authentication and on listeners without it.
    pub fn principal(&self) -> &Principal {
        self.connection.principal().unwrap_or(&Principal::ANONYMOUS)
    }

    /// The client's address.
    pub fn address(&self) -> IpAddr {
        self.connection.peer.ip().to_canonical()
    }

    /// The deadline for a request without a timeout.
    pub fn deadline(&self) -> Instant {
        self.arrived + REQUEST_TIMEOUT
    }
}
