//! The keys of a client metrics subscription, as Apache Kafka 4.3.1 knows them (facts 12).

use super::allowed::Allowed;
use super::key::{
    ConfigKey,
    ConfigType::{self, Int, List},
    Scope,
};

const ANY_LIST: Allowed = Allowed::ListOf { entries: &[], may_be_empty: true };

const fn client_metrics(name: &'static str, value_type: ConfigType) -> ConfigKey {
    ConfigKey::new(Scope::ClientMetrics, name, value_type)
}

/// In the order of their names.
pub(super) const KEYS: &[ConfigKey] = &[
    client_metrics("interval.ms", Int).default("300000"),
    client_metrics("match", List).default("").allowed(ANY_LIST),
    client_metrics("metrics", List).default("").allowed(ANY_LIST),
];
