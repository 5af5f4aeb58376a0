//! Connections by address: each is one call's alone while it is used.

use std::collections::HashMap;
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
}

impl Pool {
    pub fn new(client_id: String, security: Arc<Security>, connect_within: Duration) -> Self {
        Self { client_id, security, connect_within, idle: Mutex::default() }
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
        let connection = Connection::open(address, &self.client_id, &self.security, connect_within).await?;
        self.call_on(connection, address, request, within).await
    }

    async fn call_on<R: Request>(
        &self,
        mut connection: Connection,
        address: &str,
        request: &R,
        within: Duration,
    ) -> Result<R::Answer, LinkError> {
        let answer = connection.call(request, &self.client_id, within).await?;
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
