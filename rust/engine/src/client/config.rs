//! The configuration of a client: the keys of Apache Kafka's Java clients that mean something here.

use std::collections::BTreeMap;

use super::attempts::Patience;

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

/// Every key, by name. Defaults are those of Apache Kafka 4.3's clients.
const KEYS: &[Key] = &[
    Key { name: "client.id", default: "klamm", allowed: Allowed::Text },
    number("default.api.timeout.ms", "60000", 0, INT_MAX),
    number("fetch.max.bytes", "52428800", 1, 1 << 29),
    number("fetch.max.wait.ms", "500", 0, INT_MAX),
    number("fetch.min.bytes", "1", 0, INT_MAX),
    Key {
        name: "isolation.level",
        default: "read_uncommitted",
        allowed: Allowed::Words(&["read_uncommitted", "read_committed"]),
    },
    number("klamm.decompressed.bytes.max", "1073741824", 1, INT_MAX),
    number("max.partition.fetch.bytes", "1048576", 1, 1 << 29),
    number("request.timeout.ms", "30000", 1, INT_MAX),
    number("retries", "2147483647", 0, INT_MAX),
    number("retry.backoff.max.ms", "1000", 0, INT_MAX),
    number("retry.backoff.ms", "100", 0, INT_MAX),
    Key { name: "security.protocol", default: "PLAINTEXT", allowed: Allowed::Words(&["PLAINTEXT"]) },
    number("socket.connection.setup.timeout.ms", "10000", 1, INT_MAX),
];

impl ClientConfig {
    pub fn new(bootstrap: &str, given: &BTreeMap<String, String>) -> Result<Self, ClientConfigError> {
        if let Some(key) = given.keys().find(|key| !KEYS.iter().any(|known| known.name == **key)) {
            let known = KEYS.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
            return Err(ClientConfigError::Unknown { key: key.clone(), known });
        }
        let values = Values(given);
        values.word("security.protocol")?;
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
