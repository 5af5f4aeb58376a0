//! The configuration of a client: the supported keys of Apache Kafka's Java clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use klamm_records::Compression;

use super::attempts::RetryPolicy;
use super::keys::{ROUND_ROBIN, Values};
use super::producing::Partitioner;
use super::security::Security;

/// The configuration of a client. Times in ms, sizes in bytes.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Host and port each.
    pub bootstrap: Vec<String>,
    pub client_id: String,
    pub request_timeout_ms: u64,
    pub api_timeout_ms: u64,
    pub connect_timeout_ms: u64,
    pub backoff_ms: u64,
    pub backoff_max_ms: u64,
    pub retries: u32,
    /// How long every bootstrap server may refuse connections before any broker has been reached.
    pub refused_ms: u64,
    pub read_committed: bool,
    pub fetch_min_bytes: i32,
    pub fetch_max_bytes: i32,
    pub fetch_max_wait_ms: i32,
    pub partition_fetch_bytes_max: i32,
    pub decompressed_bytes_max: usize,
    pub security: Arc<Security>,
    pub producer: ProducerConfig,
}

/// The configuration of a producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerConfig {
    pub transactional_id: Option<String>,
    pub transaction_timeout_ms: i32,
    pub block_ms: u64,
    pub delivery_timeout_ms: u64,
    pub linger_ms: u64,
    pub batch_bytes: usize,
    pub request_bytes_max: usize,
    pub buffer_bytes: usize,
    pub compression: Compression,
    pub partitioner: Partitioner,
}

/// An invalid key or value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientConfigError {
    #[error("bootstrap.servers={value}: {why}")]
    Bootstrap { value: String, why: String },
    #[error("{key} is not a configuration of klamm's client; these are: {known}")]
    Unknown { key: String, known: String },
    #[error("{key}={value}: it must be {allowed}")]
    Value { key: &'static str, value: String, allowed: String },
    /// For keys of TLS and SASL. `why` does not repeat values, which may be secret.
    #[error("{key}: {why}")]
    Security { key: &'static str, why: String },
}

impl ClientConfig {
    pub fn new(bootstrap: &str, given: &BTreeMap<String, String>) -> Result<Self, ClientConfigError> {
        let values = Values::new(given)?;
        for the_only_choice in ["acks", "enable.idempotence", "partitioner.ignore.keys"] {
            values.word(the_only_choice)?;
        }
        Ok(Self {
            bootstrap: parse_bootstrap(bootstrap)?,
            client_id: values.text("client.id")?,
            request_timeout_ms: values.number("request.timeout.ms")? as u64,
            api_timeout_ms: values.number("default.api.timeout.ms")? as u64,
            connect_timeout_ms: values.number("socket.connection.setup.timeout.ms")? as u64,
            backoff_ms: values.number("retry.backoff.ms")? as u64,
            backoff_max_ms: values.number("retry.backoff.max.ms")? as u64,
            retries: values.number("retries")? as u32,
            refused_ms: values.number("klamm.bootstrap.refused.timeout.ms")? as u64,
            read_committed: values.word("isolation.level")? == "read_committed",
            fetch_min_bytes: values.number("fetch.min.bytes")? as i32,
            fetch_max_bytes: values.number("fetch.max.bytes")? as i32,
            fetch_max_wait_ms: values.number("fetch.max.wait.ms")? as i32,
            partition_fetch_bytes_max: values.number("max.partition.fetch.bytes")? as i32,
            decompressed_bytes_max: values.number("klamm.decompressed.bytes.max")? as usize,
            security: Arc::new(Security::new(&values)?),
            producer: ProducerConfig::new(&values)?,
        })
    }

    /// For calls that only read.
    pub fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy {
            timeout_ms: self.api_timeout_ms,
            backoff_ms: self.backoff_ms,
            backoff_max_ms: self.backoff_max_ms,
            retries: self.retries,
            refused_ms: self.refused_ms,
        }
    }
}

impl ProducerConfig {
    fn new(values: &Values<'_>) -> Result<Self, ClientConfigError> {
        let request_bytes_max = values.number("max.request.size")? as usize;
        Ok(Self {
            transactional_id: Some(values.text("transactional.id")?).filter(|id| !id.is_empty()),
            transaction_timeout_ms: values.number("transaction.timeout.ms")? as i32,
            block_ms: values.number("max.block.ms")? as u64,
            delivery_timeout_ms: values.number("delivery.timeout.ms")? as u64,
            linger_ms: values.number("linger.ms")? as u64,
            batch_bytes: (values.number("batch.size")? as usize).min(request_bytes_max),
            request_bytes_max,
            buffer_bytes: values.number("buffer.memory")? as usize,
            compression: values.compression()?,
            partitioner: match values.word("partitioner.class")? {
                ROUND_ROBIN => Partitioner::RoundRobin,
                _ => Partitioner::Keyed,
            },
        })
    }

    /// For a batch.
    pub fn retry_policy(&self, config: &ClientConfig) -> RetryPolicy {
        RetryPolicy { timeout_ms: self.delivery_timeout_ms, ..config.retry_policy() }
    }

    /// For the calls before and after the batches. Apache Kafka's `retries` limits only how often a batch is sent.
    pub fn retry_policy_of_calls(&self, config: &ClientConfig) -> RetryPolicy {
        RetryPolicy { timeout_ms: self.block_ms, retries: u32::MAX, ..config.retry_policy() }
    }
}

fn parse_bootstrap(text: &str) -> Result<Vec<String>, ClientConfigError> {
    let refused = |why: String| ClientConfigError::Bootstrap { value: text.to_owned(), why };
    let addresses: Vec<String> =
        text.split(',').map(|address| address.trim().to_owned()).filter(|address| !address.is_empty()).collect();
    if addresses.is_empty() {
        return Err(refused("it must be host:port, or several of them with commas between".to_owned()));
    }
    for address in &addresses {
        let port = address.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then_some(port));
        if port.and_then(|port| port.parse::<u16>().ok()).is_none_or(|port| port == 0) {
            return Err(refused(format!("'{address}' is not host:port")));
        }
    }
    Ok(addresses)
}
