//! Connections by address: each is one call's alone while it is used.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::connection::Connection;
use super::link_error::LinkError;
use super::messages::Request;
use super::security::Security;

/// Connections to one broker that are kept while nobody uses them.
const IDLE_MAX: usize = 8;

#[derive(Debug)]
pub struct Pool {
    client_id: String,
    security: Arc<Security>,
    connect_within: Duration,
    idle: Mutex<HashMap<String, Vec<Connection>>>,
    silent: Arc<Silent>,
}

/// The addresses that could not be connected to when that was last tried.
#[derive(Debug, Default)]
pub struct Silent(Mutex<HashSet<String>>);

impl Silent {
    /// What came of connecting to an address.
    pub fn note(&self, address: &str, error: Option<&LinkError>) {
        let mut addresses = self.0.lock();
        match error {
            Some(_) => addresses.insert(address.to_owned()),
            None => addresses.remove(address),
        };
    }

    /// The same addresses, those that were silent behind the others.
    fn behind(&self, mut addresses: Vec<String>) -> Vec<String> {
        let silent = self.0.lock();
        addresses.sort_by_key(|address| silent.contains(address));
        addresses
    }
}

impl Pool {
    pub fn new(client_id: String, security: Arc<Security>, connect_within: Duration) -> Self {
        Self { client_id, security, connect_within, idle: Mutex::default(), silent: Arc::default() }
    }

    /// Asks a broker. A connection that was idle may have been closed meanwhile: then a new one is made.
    pub async fn call<R: Request>(&self, address: &str, request: &R, within: Duration) -> Result<R::Answer, LinkError> {
        if let Some(connection) = self.take(address) {
            match self.call_on(connection, address, request, within).await {
                Err(LinkError::Broken { .. }) => self.idle.lock().remove(address),
                outcome => return outcome,
            };
        }
        let connect_within = within.min(self.connect_within);
        let opened = Connection::open(address, &self.client_id, &self.security, connect_within).await;
        self.silent.note(address, opened.as_ref().err());
        self.call_on(opened?, address, request, within).await
    }

    /// The order in which to ask: who could not be connected to the last time may let a caller wait for long.
    pub fn likely_first(&self, addresses: Vec<String>) -> Vec<String> {
        self.silent.behind(addresses)
    }

    /// To note there what comes of connections beside the pool's.
    pub fn silent(&self) -> Arc<Silent> {
        self.silent.clone()
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

    /// Closes what is idle.
    pub fn close(&self) {
        self.idle.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use klamm_base::ErrorCode;

    use super::*;

    #[test]
    fn who_was_silent_is_asked_last_until_heard_again() {
        let silent = Silent::default();
        let all = || ["a:1", "b:2", "c:3"].map(String::from).to_vec();
        let error = LinkError::Refused { address: "a:1".into(), code: ErrorCode::NONE };
        silent.note("a:1", Some(&error));
        assert_eq!(silent.behind(all()), ["b:2", "c:3", "a:1"]);
        silent.note("a:1", None);
        assert_eq!(silent.behind(all()), all());
    }
}
