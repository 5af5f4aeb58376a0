//! The keys of a client and their valid values: names, defaults and ranges are those of Apache Kafka 4.3's clients,
//! except that batches are larger, because many records are passed at once here.

use std::collections::BTreeMap;

use klamm_records::{Codec, Compression};

use super::config::ClientConfigError;

/// The valid values of a key.
enum Allowed {
    Number(i64, i64),
    Words(&'static [&'static str]),
    Text,
    /// Validated where it is used: keys of TLS and SASL.
    Given,
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

const fn given(name: &'static str) -> Key {
    Key { name, default: "", allowed: Allowed::Given }
}

pub(super) const ROUND_ROBIN: &str = "org.apache.kafka.clients.producer.RoundRobinPartitioner";

/// Every key, by name. Equivalent keys of librdkafka are included.
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
    number("klamm.bootstrap.refused.timeout.ms", "2147483647", 0, INT_MAX),
    number("klamm.decompressed.bytes.max", "1073741824", 1, INT_MAX),
    number("linger.ms", "5", 0, INT_MAX),
    number("max.block.ms", "60000", 0, INT_MAX),
    number("max.partition.fetch.bytes", "1048576", 1, 1 << 29),
    number("max.request.size", "1048576", 1, 1 << 29),
    words("partitioner.class", "", &["", ROUND_ROBIN]),
    words("partitioner.ignore.keys", "false", &["false"]),
    number("request.timeout.ms", "30000", 1, INT_MAX),
    number("retries", "2147483647", 0, INT_MAX),
    number("retry.backoff.max.ms", "1000", 0, INT_MAX),
    number("retry.backoff.ms", "100", 0, INT_MAX),
    given("sasl.jaas.config"),
    given("sasl.mechanism"),
    given("sasl.mechanisms"),
    given("sasl.password"),
    given("sasl.username"),
    words("security.protocol", "PLAINTEXT", &["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
    number("socket.connection.setup.timeout.ms", "10000", 1, INT_MAX),
    given("ssl.ca.location"),
    given("ssl.ca.pem"),
    given("ssl.certificate.location"),
    given("ssl.certificate.pem"),
    given("ssl.enabled.protocols"),
    words("ssl.endpoint.identification.algorithm", "https", &["https", "", "none"]),
    given("ssl.key.location"),
    given("ssl.key.password"),
    given("ssl.key.pem"),
    given("ssl.keystore.certificate.chain"),
    given("ssl.keystore.key"),
    given("ssl.keystore.location"),
    given("ssl.keystore.password"),
    given("ssl.keystore.type"),
    given("ssl.truststore.certificates"),
    given("ssl.truststore.location"),
    given("ssl.truststore.password"),
    given("ssl.truststore.type"),
    number("transaction.timeout.ms", "60000", 1, INT_MAX),
    Key { name: "transactional.id", default: "", allowed: Allowed::Text },
];

/// The given values, with defaults for the rest.
pub struct Values<'a>(&'a BTreeMap<String, String>);

impl<'a> Values<'a> {
    pub fn new(given: &'a BTreeMap<String, String>) -> Result<Self, ClientConfigError> {
        if let Some(key) = given.keys().find(|key| !KEYS.iter().any(|known| known.name == **key)) {
            let known = KEYS.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
            return Err(ClientConfigError::Unknown { key: key.clone(), known });
        }
        Ok(Self(given))
    }

    fn of(&self, name: &str) -> (&'static Key, &str) {
        let key = KEYS.iter().find(|key| key.name == name).expect("a key of the table");
        (key, self.0.get(name).map_or(key.default, |value| value.trim()))
    }

    /// A value that is set and not empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        let (key, value) = self.of(name);
        debug_assert!(matches!(key.allowed, Allowed::Given), "{name} is read as what it may be");
        Some(value).filter(|value| !value.is_empty())
    }

    pub fn number(&self, name: &str) -> Result<i64, ClientConfigError> {
        let (key, value) = self.of(name);
        let Allowed::Number(min, max) = key.allowed else { unreachable!("{name} is a number") };
        let refused = || ClientConfigError::Value {
            key: key.name,
            value: value.to_owned(),
            allowed: format!("a number from {min} to {max}"),
        };
        value.parse().ok().filter(|number| (min..=max).contains(number)).ok_or_else(refused)
    }

    pub fn word(&self, name: &str) -> Result<&'static str, ClientConfigError> {
        self.word_that(name, |word, value| word == value)
    }

    /// The same, ignoring case.
    pub fn word_of_any_case(&self, name: &str) -> Result<&'static str, ClientConfigError> {
        self.word_that(name, str::eq_ignore_ascii_case)
    }

    fn word_that(&self, name: &str, is_it: fn(&str, &str) -> bool) -> Result<&'static str, ClientConfigError> {
        let (key, value) = self.of(name);
        let Allowed::Words(words) = key.allowed else { unreachable!("{name} is one of some words") };
        words.iter().find(|word| is_it(word, value)).copied().ok_or_else(|| ClientConfigError::Value {
            key: key.name,
            value: value.to_owned(),
            allowed: words.join(" or "),
        })
    }

    pub fn compression(&self) -> Result<Compression, ClientConfigError> {
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

    /// A text that fits into a string of the protocol.
    pub fn text(&self, name: &str) -> Result<String, ClientConfigError> {
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
