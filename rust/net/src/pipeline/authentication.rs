//! The first step: a connection must have a principal before it may use more than ApiVersions and authentication
//! requests.

use klamm_wire::api::Api;

use super::principal::Principal;
use crate::link::Link;

/// How a listener determines the principals of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// No authentication: the security protocol is PLAINTEXT, and every principal is `User:ANONYMOUS`.
    Anonymous,
    /// By an exchange that has not taken place yet.
    #[cfg(test)]
    Exchange,
}

impl Authentication {
    /// The principal of a new connection if it is known without an exchange.
    pub fn principal_at_accept(self) -> Option<Principal> {
        match self {
            Self::Anonymous => Some(Principal::ANONYMOUS),
            #[cfg(test)]
            Self::Exchange => None,
        }
    }
}

/// Whether the connection may use `api` now; otherwise why it is closed without a response, as in Apache Kafka.
#[inline]
pub fn check(api: &Api, connection: &Link) -> Result<(), String> {
    if connection.principal().is_some() || api.is_before_authentication {
        return Ok(());
    }
    Err(format!("{} before the connection has authenticated", api.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Listener;
    use klamm_wire::api::{API_VERSIONS, ListenerKind, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE};

    fn connection(authentication: Authentication) -> Link {
        let mut listener = Listener::new("L", ListenerKind::Broker);
        listener.authentication = authentication;
        Link::new(1, ([127, 0, 0, 1], 1).into(), &listener)
    }

    fn may_ask(connection: &Link, key: i16) -> bool {
        check(Api::of(key).expect("an API"), connection).is_ok()
    }

    #[test]
    fn a_plaintext_connection_is_anonymous_from_the_start() {
        let connection = connection(Authentication::Anonymous);
        assert_eq!(connection.principal().map(Principal::to_string).as_deref(), Some("User:ANONYMOUS"));
        assert!(may_ask(&connection, METADATA));
    }

    #[test]
    fn before_an_exchange_only_the_apis_of_the_exchange_are_allowed() {
        let connection = connection(Authentication::Exchange);
        let allowed: Vec<_> = Api::all().iter().map(|api| api.key).filter(|&key| may_ask(&connection, key)).collect();
        assert_eq!(allowed, [SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE]);
        connection.set_principal(Principal { name: "alice".into(), ..Principal::ANONYMOUS });
        assert!(may_ask(&connection, METADATA));
    }
}
