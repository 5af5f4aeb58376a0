//! The keys of a group, as in Apache Kafka 4.3.1 (`GroupConfig`), and the node's keys that give their defaults.

use super::allowed::Allowed;
use super::key::{
    ConfigKey,
    ConfigType::{self, Boolean, Int, String},
    Scope, same,
};

const fn group(name: &'static str, value_type: ConfigType) -> ConfigKey {
    ConfigKey::new(Scope::Group, name, value_type)
}

/// Sorted by name.
pub(super) const KEYS: &[ConfigKey] = &[
    group("consumer.assignment.interval.ms", Int)
        .default("1000")
        .at_least(0)
        .synonyms(&[same("group.consumer.assignment.interval.ms")])
        .doc("The shortest time, in milliseconds, between two assignments of the group."),
    group("consumer.heartbeat.interval.ms", Int)
        .default("5000")
        .at_least(1)
        .synonyms(&[same("group.consumer.heartbeat.interval.ms")])
        .doc("The heartbeat interval, in milliseconds, that the group's members are given."),
    group("consumer.session.timeout.ms", Int)
        .default("45000")
        .at_least(1)
        .synonyms(&[same("group.consumer.session.timeout.ms")])
        .doc("The time, in milliseconds, without a heartbeat after which a member is removed."),
    group("share.assignment.interval.ms", Int)
        .default("1000")
        .at_least(0)
        .synonyms(&[same("group.share.assignment.interval.ms")])
        .doc("The shortest time, in milliseconds, between two assignments of the group."),
    group("share.auto.offset.reset", String)
        .default("latest")
        .allowed(Allowed::OffsetReset)
        .doc("Where the group begins in a partition without state: latest, earliest or by_duration:PERIOD."),
    group("share.delivery.count.limit", Int)
        .default("5")
        .at_least(2)
        .synonyms(&[same("group.share.delivery.count.limit")])
        .doc("How many times a record is delivered before it counts as undeliverable."),
    group("share.heartbeat.interval.ms", Int)
        .default("5000")
        .at_least(1)
        .synonyms(&[same("group.share.heartbeat.interval.ms")])
        .doc("The heartbeat interval, in milliseconds, that the group's members are given."),
    group("share.isolation.level", String)
        .default("read_uncommitted")
        .one_of(&["read_committed", "read_uncommitted"])
        .doc("Whether the group reads records of transactions that are not committed."),
    group("share.partition.max.record.locks", Int)
        .default("2000")
        .at_least(100)
        .synonyms(&[same("group.share.partition.max.record.locks")])
        .doc("The most records of a partition that the group may hold locked at one time."),
    group("share.record.lock.duration.ms", Int)
        .default("30000")
        .at_least(1000)
        .synonyms(&[same("group.share.record.lock.duration.ms")])
        .doc("How long, in milliseconds, an acquired record stays locked for its consumer."),
    group("share.renew.acknowledge.enable", Boolean)
        .default("true")
        .doc("Whether consumers may renew their locks on records (KIP-1222)."),
    group("share.session.timeout.ms", Int)
        .default("45000")
        .at_least(1)
        .synonyms(&[same("group.share.session.timeout.ms")])
        .doc("The time, in milliseconds, without a heartbeat after which a member is removed."),
    group("streams.assignment.interval.ms", Int)
        .default("1000")
        .at_least(0)
        .synonyms(&[same("group.streams.assignment.interval.ms")])
        .doc("The shortest time, in milliseconds, between two assignments of the group."),
    group("streams.heartbeat.interval.ms", Int)
        .default("5000")
        .at_least(1)
        .synonyms(&[same("group.streams.heartbeat.interval.ms")])
        .doc("The heartbeat interval, in milliseconds, that the group's members are given."),
    group("streams.initial.rebalance.delay.ms", Int)
        .default("3000")
        .at_least(0)
        .synonyms(&[same("group.streams.initial.rebalance.delay.ms")])
        .doc("How long, in milliseconds, an empty group waits for more members before its first assignment."),
    group("streams.num.standby.replicas", Int)
        .default("0")
        .at_least(0)
        .synonyms(&[same("group.streams.num.standby.replicas")])
        .doc("The number of standby replicas of each task with state."),
    group("streams.session.timeout.ms", Int)
        .default("45000")
        .at_least(1)
        .synonyms(&[same("group.streams.session.timeout.ms")])
        .doc("The time, in milliseconds, without a heartbeat after which a member is removed."),
];
