//! The configuration of a client: the keys of Apache Kafka's Java clients that mean something here.

use std::collections::BTreeMap;

use klamm_records::{Codec, Compression};

use super::attempts::Patience;
use super::producing::Partitioner;

/// What a client obeys. Times in ms, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub read_committed: bool,
    pub fetch_min_bytes: i32,
    pub fetch_max_bytes: i32,
    pub fetch_max_wait_ms: i32,
    pub partition_fetch_bytes_max: i32,
    pub decompressed_bytes_max: usize,
    pub producer: ProducerConfig,
}

/// What a producer obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerConfig {
    pub transactional_id: Option<String>,
    pub transaction_timeout_ms: i32,
    pub delivery_timeout_ms: u64,
    pub linger_ms: u64,
    pub batch_bytes: usize,
    pub request_bytes_max: usize,
    pub buffer_bytes: usize,
    pub compression: Compression,
    pub partitioner: Partitioner,
}

/// A key or value that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientConfigError {
    #[error("bootstrap.servers={value}: {why}")]
    Bootstrap { value: String, why: String },
    #[error("{key} is no configuration of klamm's client; it has: {known}")]
    Unknown { key: String, known: String },
    #[error("{key}={value}: it must be {allowed}")]
    Value { key: &'static str, value: String, allowed: String },
}

/// What the value of a key may be.
enum Allowed {
    Number(i64, i64),
    Words(&'static [&'static str]),
    Text,
}

struct Key {
    name: &'static str,
    default: &'static str,
    allowed: Allowed,
}

const INT_MAX: i64 = i32::MAX as i64;

const fn number(name: &'static str, default: &'static str, min: i64, max: i64) -> Key {
    Key { name, default, allowed: Allowed::Number(min, max) }
}

const fn words(name: &'static str, default: &'static str, words: &'static [&'static str]) -> Key {
    Key { name, default, allowed: Allowed::Words(words) }
}

const ROUND_ROBIN: &str = "org.apache.kafka.clients.producer.RoundRobinPartitioner";

/// Every key, by name. Defaults are those of Apache Kafka 4.3's clients, except that batches are larger: records come
/// by many at once here.
const KEYS: &[Key] = &[
    words("acks", "all", &["all", "-1"]),
    number("batch.size", "262144", 1, 1 << 29),
    number("buffer.memory", "33554432", 1, 1 << 40),
    Key { name: "client.id", default: "klamm", allowed: Allowed::Text },
    number("compression.gzip.level", "-1", -1, 9),
    number("compression.lz4.level", "9", 1, 17),
    words("compression.type", "none", &["none", "gzip", "snappy", "lz4", "zstd"]),
    number("compression.zstd.level", "3", -131_072, 22),
    number("default.api.timeout.ms", "60000", 0, INT_MAX),
    number("delivery.timeout.ms", "120000", 1, INT_MAX),
    words("enable.idempotence", "true", &["true"]),
    number("fetch.max.bytes", "52428800", 1, 1 << 29),
    number("fetch.max.wait.ms", "500", 0, INT_MAX),
    number("fetch.min.bytes", "1", 0, INT_MAX),
    words("isolation.level", "read_uncommitted", &["read_uncommitted", "read_committed"]),
    number("klamm.decompressed.bytes.max", "1073741824", 1, INT_MAX),
    number("linger.ms", "5", 0, INT_MAX),
    number("max.partition.fetch.bytes", "1048576", 1, 1 << 29),
    number("max.request.size", "1048576", 1, 1 << 29),
    words("partitioner.class", "", &["", ROUND_ROBIN]),
    number("request.timeout.ms", "30000", 1, INT_MAX),
    number("retries", "2147483647", 0, INT_MAX),
    number("retry.backoff.max.ms", "1000", 0, INT_MAX),
    number("retry.backoff.ms", "100", 0, INT_MAX),
    words("security.protocol", "PLAINTEXT", &["PLAINTEXT"]),
    number("socket.connection.setup.timeout.ms", "10000", 1, INT_MAX),
    number("transaction.timeout.ms", "60000", 1, INT_MAX),
    Key { name: "transactional.id", default: "", allowed: Allowed::Text },
];

impl ClientConfig {
    pub fn new(bootstrap: &str, given: &BTreeMap<String, String>) -> Result<Self, ClientConfigError> {
        if let Some(key) = given.keys().find(|key| !KEYS.iter().any(|known| known.name == **key)) {
            let known = KEYS.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
            return Err(ClientConfigError::Unknown { key: key.clone(), known });
        }
        let values = Values(given);
        for the_only_choice in ["security.protocol", "acks", "enable.idempotence"] {
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
            read_committed: values.word("isolation.level")? == "read_committed",
            fetch_min_bytes: values.number("fetch.min.bytes")? as i32,
            fetch_max_bytes: values.number("fetch.max.bytes")? as i32,
            fetch_max_wait_ms: values.number("fetch.max.wait.ms")? as i32,
            partition_fetch_bytes_max: values.number("max.partition.fetch.bytes")? as i32,
            decompressed_bytes_max: values.number("klamm.decompressed.bytes.max")? as usize,
            producer: ProducerConfig::new(&values)?,
        })
    }

    /// How patient a call is that only reads.
    pub fn patience(&self) -> Patience {
        Patience {
            timeout_ms: self.api_timeout_ms,
            backoff_ms: self.backoff_ms,
            backoff_max_ms: self.backoff_max_ms,
            retries: self.retries,
        }
    }
}

impl ProducerConfig {
    fn new(values: &Values<'_>) -> Result<Self, ClientConfigError> {
        let request_bytes_max = values.number("max.request.size")? as usize;
        Ok(Self {
            transactional_id: Some(values.text("transactional.id")?).filter(|id| !id.is_empty()),
            transaction_timeout_ms: values.number("transaction.timeout.ms")? as i32,
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

    /// How patient a batch is.
    pub fn patience(&self, config: &ClientConfig) -> Patience {
        Patience { timeout_ms: self.delivery_timeout_ms, ..config.patience() }
    }
}

/// The values that were given, and defaults for the rest.
struct Values<'a>(&'a BTreeMap<String, String>);

impl Values<'_> {
    fn of(&self, name: &str) -> (&'static Key, &str) {
        let key = KEYS.iter().find(|key| key.name == name).expect("a key of the table");
        (key, self.0.get(name).map_or(key.default, |value| value.trim()))
    }

    fn number(&self, name: &str) -> Result<i64, ClientConfigError> {
        let (key, value) = self.of(name);
        let Allowed::Number(min, max) = key.allowed else { unreachable!("{name} is a number") };
        let refused = || ClientConfigError::Value {
            key: key.name,
            value: value.to_owned(),
            allowed: format!("a number from {min} to {max}"),
        };
        value.parse().ok().filter(|number| (min..=max).contains(number)).ok_or_else(refused)
    }

    fn word(&self, name: &str) -> Result<&'static str, ClientConfigError> {
        let (key, value) = self.of(name);
        let Allowed::Words(words) = key.allowed else { unreachable!("{name} is one of some words") };
        words.iter().find(|word| **word == value).copied().ok_or_else(|| ClientConfigError::Value {
            key: key.name,
            value: value.to_owned(),
            allowed: words.join(" or "),
        })
    }

    fn compression(&self) -> Result<Compression, ClientConfigError> {
        let name = self.word("compression.type")?;
        let codec = Codec::from_name(name).expect("the words are names of codecs");
        if codec.levels().is_none() {
            return Ok(Compression::of(codec));
        }
        let key = format!("compression.{name}.level");
        let level = self.number(&key)? as i32;
        let (key, value) = self.of(&key);
        let refused = || ClientConfigError::Value {
            key: key.name,
            value: value.to_owned(),
            allowed: format!("a level of {name}"),
        };
        Compression::at_level(codec, level).ok_or_else(refused)
    }

    /// Text that fits into a string of the protocol.
    fn text(&self, name: &str) -> Result<String, ClientConfigError> {
        let (key, value) = self.of(name);
        let allowed = || format!("at most {TEXT_BYTES_MAX} bytes");
        match value.len() {
            ..=TEXT_BYTES_MAX => Ok(value.to_owned()),
            _ => {
                Err(ClientConfigError::Value { key: key.name, value: format!("{:.40}...", value), allowed: allowed() })
            }
        }
    }
}

const TEXT_BYTES_MAX: usize = 1024;

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
