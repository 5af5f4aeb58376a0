//! Connections by address: each is used by one call at a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::connection::Connection;
use super::link_error::LinkError;
use super::messages::Request;
use super::security::Security;

/// Limit on idle connections that are kept for each broker.
const IDLE_MAX: usize = 8;

#[derive(Debug)]
pub struct Pool {
    client_id: String,
    security: Arc<Security>,
    connect_within: Duration,
    idle: Mutex<HashMap<String, Vec<Connection>>>,
    unreachable: Arc<UnreachableAddresses>,
}

/// The addresses to which the last connection attempt failed.
#[derive(Debug, Default)]
pub struct UnreachableAddresses(Mutex<HashSet<String>>);

impl UnreachableAddresses {
    /// Records the result of connecting to an address.
    pub fn note(&self, address: &str, error: Option<&LinkError>) {
        let mut addresses = self.0.lock();
        match error {
            Some(_) => addresses.insert(address.to_owned()),
            None => addresses.remove(address),
        };
    }

    /// The same addresses, unreachable ones last.
    fn unreachable_last(&self, mut addresses: Vec<String>) -> Vec<String> {
        let unreachable = self.0.lock();
        addresses.sort_by_key(|address| unreachable.contains(address));
        addresses
    }
}

impl Pool {
    pub fn new(client_id: String, security: Arc<Security>, connect_within: Duration) -> Self {
        Self { client_id, security, connect_within, idle: Mutex::default(), unreachable: Arc::default() }
    }

    /// Sends a request to a broker. An idle connection may have been closed meanwhile: then a new one is made.
    pub async fn call<R: Request>(&self, address: &str, request: &R, within: Duration) -> Result<R::Answer, LinkError> {
        if let Some(connection) = self.take(address) {
            match self.call_on(connection, address, request, within).await {
                Err(LinkError::Broken { .. }) => self.idle.lock().remove(address),
                outcome => return outcome,
            };
        }
        let connect_within = within.min(self.connect_within);
        let opened = Connection::open(address, &self.client_id, &self.security, connect_within).await;
        self.unreachable.note(address, opened.as_ref().err());
        self.call_on(opened?, address, request, within).await
    }

    /// The order in which to try addresses: those that were unreachable may cause a long wait.
    pub fn likely_first(&self, addresses: Vec<String>) -> Vec<String> {
        self.unreachable.unreachable_last(addresses)
    }

    /// For recording the results of connections outside of the pool.
    pub fn unreachable(&self) -> Arc<UnreachableAddresses> {
        self.unreachable.clone()
    }

    async fn call_on<R: Request>(
        &self,
        mut connection: Connection,
        address: &str,
        request: &R,
        within: Duration,
    ) -> Result<R::Answer, LinkError> {
        let answer = connection.call(request, within).await?;
        self.give(address, connection);
        Ok(answer)
    }

    fn take(&self, address: &str) -> Option<Connection> {
        self.idle.lock().get_mut(address)?.pop()
    }

    fn give(&self, address: &str, connection: Connection) {
        let mut idle = self.idle.lock();
        let kept = idle.entry(address.to_owned()).or_default();
        if kept.len() < IDLE_MAX {
            kept.push(connection);
        }
    }

    /// Closes idle connections.
    pub fn close(&self) {
        self.idle.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use klamm_base::ErrorCode;

    use super::*;

    #[test]
    fn unreachable_addresses_are_tried_last_until_they_answer() {
        let unreachable = UnreachableAddresses::default();
        let all = || ["a:1", "b:2", "c:3"].map(String::from).to_vec();
        let error = LinkError::Refused { address: "a:1".into(), code: ErrorCode::NONE };
        unreachable.note("a:1", Some(&error));
        assert_eq!(unreachable.unreachable_last(all()), ["b:2", "c:3", "a:1"]);
        unreachable.note("a:1", None);
        assert_eq!(unreachable.unreachable_last(all()), all());
    }
}
