//! The keys of a client metrics subscription, as in Apache Kafka 4.3.1 (`ClientMetricsConfigs`).

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

/// Sorted by name.
pub(super) const KEYS: &[ConfigKey] = &[
    client_metrics("interval.ms", Int).default("300000"),
    client_metrics("match", List).default("").allowed(ANY_LIST),
    client_metrics("metrics", List).default("").allowed(ANY_LIST),
];
