//! klamm's own keys, which Apache Kafka does not have. Each is additive and can be turned off.

use super::allowed::Allowed;
use super::key::ConfigType::{Boolean, Int, List, String};
use super::key::{ConfigKey, ConfigType, Scope};

const fn node(name: &'static str, value_type: ConfigType) -> ConfigKey {
    ConfigKey::new(Scope::Node, name, value_type)
}

/// Sorted by name.
pub(super) const KEYS: &[ConfigKey] = &[
    node("klamm.crash.detection", Boolean).default("true").doc(
        "Whether a controller or broker whose connection closed, and which refuses new ones, counts as dead immediately, in addition \
         to the time-outs. Turn it off when proxies refuse connections on behalf of others.",
    ),
    node("klamm.flush.before.ack", String).default("all").one_of(&["all", "none"]).doc(
        "`all`: what is acknowledged is on the disk, and no consumer sees what a power cut could take back. `none`: as Apache \
         Kafka, which leaves it to the page cache and to other replicas.",
    ),
    node("klamm.log.format", String)
        .default("text")
        .one_of(&["text", "json"])
        .doc("The format of klamm's own log lines on stderr: plain text, or one JSON object per line."),
    node("klamm.log.level", String)
        .default("INFO")
        .allowed(Allowed::OneOfIgnoringCase(&["DEBUG", "INFO", "WARN", "ERROR"]))
        .doc("The least severe log lines that are written."),
    node("klamm.log.levels", List)
        .default("")
        .doc("Other levels for single parts, as name=LEVEL,...; for example klamm.raft=DEBUG."),
    node("klamm.open.files.max", Int).default("-1").allowed(Allowed::AtLeastOr(16, -1)).doc(
        "The most files of logs that are open at a time; -1 derives it from the process's own limit. Files are opened when they \
         are used.",
    ),
];
