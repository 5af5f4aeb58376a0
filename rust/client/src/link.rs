//! A connection for whoever has frames of their own to send: agreed on, by TLS and with SASL as the configuration says.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::config::ClientConfig;
use super::connection::Connection;
use super::link_error::LinkError;

#[derive(Debug)]
pub struct Link {
    connection: Connection,
    client_id: String,
}

impl Link {
    /// Connects to host:port.
    pub async fn open(config: &ClientConfig, address: &str) -> Result<Self, LinkError> {
        let within = Duration::from_millis(config.connect_timeout_ms);
        let connection = Connection::open(address, &config.client_id, &Arc::clone(&config.security), within).await?;
        Ok(Self { connection, client_id: config.client_id.clone() })
    }

    /// The answer's frame to a request's, both without their lengths. After an error the link is of no use.
    pub async fn exchange(&mut self, frame: &[u8], within: Duration) -> Result<Bytes, LinkError> {
        self.connection.forward(frame, &self.client_id, within).await
    }
}
