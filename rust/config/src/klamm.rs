//! klamm's own keys: what Apache Kafka does not have. Each is additive, and its default can be turned off.

use super::allowed::Allowed;
use super::key::ConfigType::{Boolean, Int, List, String};
use super::key::{ConfigKey, ConfigType, Scope};

const fn node(name: &'static str, value_type: ConfigType) -> ConfigKey {
    ConfigKey::new(Scope::Node, name, value_type)
}

/// In the order of their names.
pub(super) const KEYS: &[ConfigKey] = &[
    node("klamm.crash.detection", Boolean).default("true").doc(
        "Whether a controller whose connection closed, and who refuses a new one, counts as dead at once, beside the \
         time-outs. To be turned off behind proxies that refuse connections for others.",
    ),
    node("klamm.flush.before.ack", String).default("all").one_of(&["all", "none"]).high().doc(
        "`all`: what is acknowledged is on the disk, and no consumer sees what a power cut could take back. `none`: as Apache \
         Kafka, which leaves it to the page cache and to other replicas.",
    ),
    node("klamm.log.format", String)
        .default("text")
        .one_of(&["text", "json"])
        .low()
        .doc("How klamm's own log lines on stderr look: for a person, or one JSON object a line."),
    node("klamm.log.level", String)
        .default("INFO")
        .allowed(Allowed::OneOfIgnoringCase(&["DEBUG", "INFO", "WARN", "ERROR"]))
        .low()
        .doc("The least severe log lines that are written."),
    node("klamm.log.levels", List)
        .default("")
        .low()
        .doc("Other levels for single parts, as name=LEVEL,...; for example klamm.raft=DEBUG."),
    node("klamm.open.files.max", Int).default("-1").allowed(Allowed::AtLeastOr(16, -1)).doc(
        "The most files of logs that are open at a time; -1 derives it from the process's own limit. Files are opened when they \
         are used.",
    ),
];
