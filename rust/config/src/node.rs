//! The keys of a node (broker and controller), as in Apache Kafka 4.3.1 (`KafkaConfig`).

use super::allowed::Allowed;
use super::key::{
    ConfigKey,
    ConfigType::{self, Boolean, Class, Double, Int, List, Long, Password, Short, String},
    Scope,
};

const ANY_LIST: Allowed = Allowed::ListOf { entries: &[], may_be_empty: true };
const SOME_LIST: Allowed = Allowed::ListOf { entries: &[], may_be_empty: false };

const fn node(name: &'static str, value_type: ConfigType) -> ConfigKey {
    ConfigKey::new(Scope::Node, name, value_type)
}

/// Sorted by name.
pub(super) const KEYS: &[ConfigKey] = &[
    node("add.partitions.to.txn.retry.backoff.max.ms", Int)
        .default("100")
        .at_least(0)
        .doc(
            "The longest time for which the broker itself retries to add a partition to a transaction while the \
             producer's earlier transaction is still completing.",
        ),
    node("add.partitions.to.txn.retry.backoff.ms", Int)
        .default("20")
        .at_least(1)
        .doc("The pause between two of the broker's own retries to add a partition to a transaction."),
    node("advertised.listeners", List).allowed(SOME_LIST).doc(
        "The addresses that clients and other brokers use to connect. Unset, it equals `listeners`; 0.0.0.0 \
             is refused here because it is not an address to connect to.",
    ),
    node("alter.config.policy.class.name", Class),
    node("alter.log.dirs.replication.quota.window.num", Int)
        .default("11")
        .at_least(1)
        .doc("The number of samples that the rate limit of moves between log directories keeps."),
    node("alter.log.dirs.replication.quota.window.size.seconds", Int)
        .default("1")
        .at_least(1)
        .doc("The length, in seconds, of each sample of the rate limit of moves between log directories."),
    node("authorizer.class.name", String).default("").allowed(Allowed::NonNull),
    node("auto.create.topics.enable", Boolean).default("true").doc(
        "Whether asking for the metadata of a topic that does not exist creates it, with `num.partitions` \
             partitions and `default.replication.factor` replicas.",
    ),
    node("auto.leader.rebalance.enable", Boolean).default("true").doc(
        "Whether the controller moves the leadership of partitions back to their first replica from time to \
             time.",
    ),
    node("background.threads", Int).default("10").at_least(1).cluster_wide(),
    node("broker.heartbeat.interval.ms", Int)
        .default("2000")
        .doc("How often the broker sends a heartbeat to the controller."),
    node("broker.id", Int)
        .default("-1")
        .doc("The older name of `node.id`. When both are set they must be equal."),
    node("broker.rack", String)
        .doc("The location of this broker, as free text. Replicas of a partition are spread over racks."),
    node("broker.session.timeout.ms", Int)
        .default("9000")
        .doc("How long the controller waits for a heartbeat before it fences a broker."),
    node("client.quota.callback.class", Class),
    node("compression.gzip.level", Int)
        .default("-1")
        .allowed(Allowed::GzipLevel)
        .cluster_wide()
        .doc("The gzip level for batches that are recompressed because `compression.type` is gzip."),
    node("compression.lz4.level", Int)
        .default("9")
        .between(1, 17)
        .cluster_wide()
        .doc("The lz4 level for batches that are recompressed because `compression.type` is lz4."),
    node("compression.type", String)
        .default("producer")
        .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
        .cluster_wide()
        .doc(
            "How batches are stored. `producer` keeps what the producer chose; any other value converts what \
             differs.",
        ),
    node("compression.zstd.level", Int)
        .default("3")
        .between(-131072, 22)
        .cluster_wide()
        .doc("The zstd level for batches that are recompressed because `compression.type` is zstd."),
    node("config.providers", List).default("").allowed(ANY_LIST).cluster_wide(),
    node("connection.failed.authentication.delay.ms", Int).default("100").at_least(0),
    node("connections.max.idle.ms", Long)
        .default("600000")
        .doc("A connection without requests for this long is closed."),
    node("connections.max.reauth.ms", Long).default("0"),
    node("controlled.shutdown.enable", Boolean)
        .default("true")
        .doc("Whether the broker asks the controller to move its leaders away before it stops."),
    node("controller.listener.names", List).required().allowed(SOME_LIST).doc(
        "The names of the listeners that controllers use, first one preferred. A listener named here serves \
             no clients.",
    ),
    node("controller.performance.always.log.threshold.ms", Long).default("2000").at_least(0).internal(),
    node("controller.performance.sample.period.ms", Long).default("60000").at_least(100).internal(),
    node("controller.quorum.append.linger.ms", Int).default("25").at_least(0),
    node("controller.quorum.auto.join.enable", Boolean).default("false").doc(
        "Whether a controller that follows the quorum's log makes itself a voter, and with a new disk removes first \
         what it was with the old one (KIP-853).",
    ),
    node("controller.quorum.bootstrap.servers", List).default("").allowed(Allowed::Servers).doc(
        "Addresses, as host:port, at which the quorum of controllers can be found when its voters are kept in \
             the metadata log.",
    ),
    node("controller.quorum.election.backoff.max.ms", Int)
        .default("1000")
        .at_least(0)
        .doc("The longest random wait of a candidate between two elections without a winner."),
    node("controller.quorum.election.timeout.ms", Int)
        .default("1000")
        .at_least(0)
        .doc("How long a candidate waits for votes before it starts another election."),
    node("controller.quorum.fetch.max.bytes", Int)
        .default("1048576")
        .at_least(1)
        .doc("The most bytes of the metadata log in one fetch response between controllers."),
    node("controller.quorum.fetch.snapshot.max.bytes", Int).default("1048576").at_least(1),
    node("controller.quorum.fetch.timeout.ms", Int).default("2000").at_least(0).doc(
        "How long a follower waits for its leader, and a leader for a majority of its followers, before it \
             calls an election or resigns.",
    ),
    node("controller.quorum.request.timeout.ms", Int)
        .default("2000")
        .at_least(0)
        .doc("How long one request between controllers may take."),
    node("controller.quorum.retry.backoff.ms", Int)
        .default("20")
        .at_least(0)
        .doc("How long a controller waits before it repeats a request to another that failed."),
    node("controller.quorum.voters", List).default("").allowed(Allowed::Voters).doc(
        "The controllers, as id@host:port,..., when their set is fixed by configuration and not kept in the \
             metadata log.",
    ),
    node("controller.quota.window.num", Int)
        .default("11")
        .at_least(1)
        .doc("For how many times `controller.quota.window.size.seconds` a client may save its quota of changes by the controller."),
    node("controller.quota.window.size.seconds", Int)
        .default("1")
        .at_least(1)
        .doc("The time that is multiplied by `controller.quota.window.num`."),
    node("controller.socket.timeout.ms", Int).default("30000"),
    node("cordoned.log.dirs", List)
        .default("")
        .allowed(ANY_LIST)
        .per_broker()
        .doc("The log directories that receive no new partitions (KIP-1066); * means all."),
    node("create.topic.policy.class.name", Class),
    node("default.replication.factor", Int)
        .default("1")
        .doc("The number of replicas of a topic whose creator does not specify it."),
    node("delegation.token.expiry.check.interval.ms", Long).default("3600000").at_least(1),
    node("delegation.token.expiry.time.ms", Long).default("86400000").at_least(1),
    node("delegation.token.max.lifetime.ms", Long).default("604800000").at_least(1),
    node("delegation.token.secret.key", Password),
    node("delete.records.purgatory.purge.interval.requests", Int).default("1"),
    node("delete.topic.enable", Boolean)
        .default("true")
        .doc("Whether topics can be deleted. Without it a deletion is answered with TOPIC_DELETION_DISABLED."),
    node("early.start.listeners", List).allowed(ANY_LIST),
    node("fetch.max.bytes", Int).default("57671680").at_least(1024).doc(
        "The most bytes that one fetch is answered with. The first batch is always returned, even when it is \
             larger.",
    ),
    node("fetch.purgatory.purge.interval.requests", Int).default("1000"),
    node("follower.fetch.last.tiered.offset.enable", Boolean).default("false").cluster_wide(),
    node("follower.replication.throttled.rate", Long)
        .default("9223372036854775807")
        .at_least(0)
        .cluster_wide()
        .dynamic_only().doc("The most bytes a second that this broker fetches for the throttled replicas that it follows."),
    node("group.consumer.assignment.interval.ms", Int).default("1000").at_least(0).cluster_wide().doc("The shortest time, in milliseconds, between two assignments of a consumer group (KIP-848)."),
    node("group.consumer.assignors", List).default("uniform,range").allowed(SOME_LIST).doc("The server-side assignors of consumer groups; the first one is the default."),
    node("group.consumer.heartbeat.interval.ms", Int).default("5000").at_least(1).doc("The heartbeat interval, in milliseconds, that members of a consumer group are given."),
    node("group.consumer.max.assignment.interval.ms", Int).default("15000").at_least(0).doc("The largest assignment interval, in milliseconds, that a consumer group may be configured with."),
    node("group.consumer.max.heartbeat.interval.ms", Int).default("15000").at_least(1).doc("The largest heartbeat interval, in milliseconds, that a consumer group may be configured with."),
    node("group.consumer.max.session.timeout.ms", Int).default("60000").at_least(1).doc("The largest session time-out, in milliseconds, that a consumer group may be configured with."),
    node("group.consumer.max.size", Int).default("2147483647").at_least(1).doc("The most members that a consumer group may have."),
    node("group.consumer.migration.policy", String).default("bidirectional").allowed(Allowed::OneOfIgnoringCase(&[
        "DISABLED",
        "DOWNGRADE",
        "UPGRADE",
        "BIDIRECTIONAL",
    ])).doc("Which conversions between classic and consumer groups happen by themselves: disabled, upgrade, downgrade or bidirectional."),
    node("group.consumer.min.assignment.interval.ms", Int).default("0").at_least(0).doc("The smallest assignment interval, in milliseconds, that a consumer group may be configured with."),
    node("group.consumer.min.heartbeat.interval.ms", Int).default("5000").at_least(1).doc("The smallest heartbeat interval, in milliseconds, that a consumer group may be configured with."),
    node("group.consumer.min.session.timeout.ms", Int).default("45000").at_least(1).doc("The smallest session time-out, in milliseconds, that a consumer group may be configured with."),
    node("group.consumer.regex.refresh.interval.ms", Int).default("600000").at_least(10000).internal().doc("How often, in milliseconds, the topics that a subscribed regular expression matches are resolved again."),
    node("group.consumer.session.timeout.ms", Int).default("45000").at_least(1).doc("The time, in milliseconds, without a heartbeat after which a member of a consumer group is removed."),
    node("group.coordinator.append.linger.ms", Int).default("-1").at_least(-1),
    node("group.coordinator.background.threads", Int).default("2").at_least(1),
    node("group.coordinator.cached.buffer.max.bytes", Int).default("1048588").at_least(524288).cluster_wide(),
    node("group.coordinator.rebalance.protocols", List)
        .default("classic,consumer,streams")
        .allowed(Allowed::ListOf { entries: &["consumer", "classic", "share", "streams"], may_be_empty: false }).doc("The group protocols that the coordinator serves, besides what group.version and share.version enable."),
    node("group.coordinator.threads", Int).default("4").at_least(1),
    node("group.initial.rebalance.delay.ms", Int)
        .default("3000")
        .doc("How long an empty group waits for more members before its first rebalance."),
    node("group.max.session.timeout.ms", Int)
        .default("1800000")
        .doc("The longest session timeout that a member of a group may request."),
    node("group.max.size", Int).default("2147483647").at_least(1).doc("The most members that a group may have."),
    node("group.min.session.timeout.ms", Int)
        .default("6000")
        .doc("The shortest session timeout that a member of a group may request."),
    node("group.share.assignment.interval.ms", Int).default("1000").at_least(0).cluster_wide().doc("The shortest time, in milliseconds, between two assignments of a share group (KIP-932)."),
    node("group.share.assignors", List).default("simple").allowed(SOME_LIST).doc("The server-side assignors of share groups."),
    node("group.share.delivery.count.limit", Int).default("5").between(2, 10).doc("How many times a share group delivers a record before the record counts as undeliverable."),
    node("group.share.heartbeat.interval.ms", Int).default("5000").at_least(1).doc("The heartbeat interval, in milliseconds, that members of a share group are given."),
    node("group.share.initialize.retry.interval.ms", Int).default("30000").at_least(1).internal().doc("The pause, in milliseconds, before the initialization of a share partition's state is tried again."),
    node("group.share.max.assignment.interval.ms", Int).default("15000").at_least(0).doc("The largest assignment interval, in milliseconds, that a share group may be configured with."),
    node("group.share.max.delivery.count.limit", Int).default("10").between(5, 25).doc("The largest delivery count limit that a share group may be configured with."),
    node("group.share.max.heartbeat.interval.ms", Int).default("15000").at_least(1).doc("The largest heartbeat interval, in milliseconds, that a share group may be configured with."),
    node("group.share.max.partition.max.record.locks", Int).default("4000").between(2000, 10000).doc("The largest limit of locked records a partition that a share group may be configured with."),
    node("group.share.max.record.lock.duration.ms", Int).default("60000").between(30000, 3600000).doc("The longest record lock, in milliseconds, that a share group may be configured with."),
    node("group.share.max.session.timeout.ms", Int).default("60000").at_least(1).doc("The largest session time-out, in milliseconds, that a share group may be configured with."),
    node("group.share.max.share.sessions", Int).default("2000").at_least(1).doc("The most share sessions that a broker keeps."),
    node("group.share.max.size", Int).default("200").between(1, 1000).doc("The most members that a share group may have."),
    node("group.share.min.assignment.interval.ms", Int).default("0").at_least(0).doc("The smallest assignment interval, in milliseconds, that a share group may be configured with."),
    node("group.share.min.delivery.count.limit", Int).default("2").between(2, 5).doc("The smallest delivery count limit that a share group may be configured with."),
    node("group.share.min.heartbeat.interval.ms", Int).default("5000").at_least(1).doc("The smallest heartbeat interval, in milliseconds, that a share group may be configured with."),
    node("group.share.min.partition.max.record.locks", Int).default("100").between(100, 2000).doc("The smallest limit of locked records a partition that a share group may be configured with."),
    node("group.share.min.record.lock.duration.ms", Int).default("15000").between(1000, 30000).doc("The shortest record lock, in milliseconds, that a share group may be configured with."),
    node("group.share.min.session.timeout.ms", Int).default("45000").at_least(1).doc("The smallest session time-out, in milliseconds, that a share group may be configured with."),
    node("group.share.partition.max.record.locks", Int).default("2000").between(100, 10000).doc("The most records of a partition that a share group may hold locked at one time."),
    node("group.share.persister.class.name", String)
        .default("org.apache.kafka.server.share.persister.DefaultStatePersister")
        .internal(),
    node("group.share.record.lock.duration.ms", Int).default("30000").between(1000, 3600000).doc("How long, in milliseconds, an acquired record stays locked for its consumer."),
    node("group.share.session.timeout.ms", Int).default("45000").at_least(1).doc("The time, in milliseconds, without a heartbeat after which a member of a share group is removed."),
    node("group.streams.assignment.interval.ms", Int).default("1000").at_least(0).cluster_wide().doc("The shortest time, in milliseconds, between two assignments of a streams group (KIP-1071)."),
    node("group.streams.heartbeat.interval.ms", Int).default("5000").at_least(1).doc("The heartbeat interval, in milliseconds, that members of a streams group are given."),
    node("group.streams.initial.rebalance.delay.ms", Int).default("3000").at_least(0).doc("How long, in milliseconds, an empty streams group waits for more members before its first assignment."),
    node("group.streams.max.assignment.interval.ms", Int).default("15000").at_least(0).doc("The largest assignment interval, in milliseconds, that a streams group may be configured with."),
    node("group.streams.max.heartbeat.interval.ms", Int).default("15000").at_least(1).doc("The largest heartbeat interval, in milliseconds, that a streams group may be configured with."),
    node("group.streams.max.session.timeout.ms", Int).default("60000").at_least(1).doc("The largest session time-out, in milliseconds, that a streams group may be configured with."),
    node("group.streams.max.size", Int).default("2147483647").at_least(1).doc("The most members that a streams group may have."),
    node("group.streams.max.standby.replicas", Int).default("2").at_least(0).doc("The most standby replicas a task that a streams group may be configured with."),
    node("group.streams.min.assignment.interval.ms", Int).default("0").at_least(0).doc("The smallest assignment interval, in milliseconds, that a streams group may be configured with."),
    node("group.streams.min.heartbeat.interval.ms", Int).default("5000").at_least(1).doc("The smallest heartbeat interval, in milliseconds, that a streams group may be configured with."),
    node("group.streams.min.session.timeout.ms", Int).default("45000").at_least(1).doc("The smallest session time-out, in milliseconds, that a streams group may be configured with."),
    node("group.streams.num.standby.replicas", Int).default("0").at_least(0).doc("The number of standby replicas of each task with state."),
    node("group.streams.session.timeout.ms", Int).default("45000").at_least(1).doc("The time, in milliseconds, without a heartbeat after which a member of a streams group is removed."),
    node("initial.broker.registration.timeout.ms", Int)
        .default("60000")
        .doc("How long a starting broker tries to register at the controller before it gives up and stops."),
    node("inter.broker.listener.name", String)
        .doc("The listener that brokers use among themselves. Not together with `security.inter.broker.protocol`."),
    node("internal.metadata.delete.delay.millis", Long).default("60000").internal(),
    node("internal.metadata.log.segment.bytes", Int).internal(),
    node("internal.metadata.max.batch.size.in.bytes", Int).default("8388608").internal(),
    node("kafka.metrics.polling.interval.secs", Int).default("10").at_least(1),
    node("kafka.metrics.reporters", List).default("").allowed(ANY_LIST),
    node("leader.imbalance.check.interval.seconds", Long)
        .default("300")
        .at_least(1)
        .doc("How often the controller checks whether leaders should move back to the preferred replicas."),
    node("leader.replication.throttled.rate", Long)
        .default("9223372036854775807")
        .at_least(0)
        .cluster_wide()
        .dynamic_only().doc("The most bytes a second that this broker sends for the throttled replicas that it leads."),
    node("listener.security.protocol.map", String)
        .default("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT")
        .per_broker()
        .doc("The security protocol of each listener name, as NAME:PROTOCOL,...."),
    node("listeners", List).default("PLAINTEXT://:9092").allowed(SOME_LIST).per_broker().doc(
        "The addresses to listen on, as NAME://host:port,.... An empty host or 0.0.0.0 means every interface; \
             port 0 means a free one.",
    ),
    node("log.cleaner.backoff.ms", Long)
        .default("15000")
        .at_least(0)
        .cluster_wide()
        .doc("How long the cleaner sleeps when it found nothing to compact."),
    node("log.cleaner.dedupe.buffer.size", Long)
        .default("134217728")
        .cluster_wide()
        .doc("The most memory, in bytes, for the maps of keys that all cleaner threads build while they compact."),
    node("log.cleaner.delete.retention.ms", Long)
        .default("86400000")
        .at_least(0)
        .cluster_wide()
        .doc("How long a tombstone outlives its compaction, so that a reader that began earlier sees it."),
    node("log.cleaner.enable", Boolean)
        .default("true")
        .doc("Whether topics with the `compact` policy are compacted at all. `__consumer_offsets` needs it."),
    node("log.cleaner.io.buffer.load.factor", Double).default("0.9").cluster_wide().doc(
        "How full `log.cleaner.dedupe.buffer.size` may get: more compacts more at a time, less finds keys faster.",
    ),
    node("log.cleaner.io.buffer.size", Int).default("524288").at_least(0).cluster_wide().doc(
        "The memory, in bytes, that all cleaner threads read into and write from; larger batches get what they need.",
    ),
    node("log.cleaner.io.max.bytes.per.second", Double)
        .default("1.7976931348623157E308")
        .cluster_wide()
        .doc("The most bytes a second that compaction reads and writes."),
    node("log.cleaner.max.compaction.lag.ms", Long)
        .default("9223372036854775807")
        .at_least(1)
        .cluster_wide()
        .doc("The longest time that a record may wait for compaction."),
    node("log.cleaner.min.cleanable.ratio", Double)
        .default("0.5")
        .between(0, 1)
        .cluster_wide()
        .doc("The share of a log that must be dirty before it is compacted."),
    node("log.cleaner.min.compaction.lag.ms", Long)
        .default("0")
        .at_least(0)
        .cluster_wide()
        .doc("The shortest time that a record stays as it was written."),
    node("log.cleaner.threads", Int).default("1").at_least(0).cluster_wide().doc("The number of threads that compact."),
    node("log.cleanup.policy", List)
        .default("delete")
        .allowed(Allowed::ListOf { entries: &["compact", "delete"], may_be_empty: true })
        .cluster_wide()
        .doc(
            "What happens to old data: `delete` drops old segments, `compact` keeps the last record of each key, \
             both do both.",
        ),
    node("log.dir", List)
        .default("/tmp/kafka-logs")
        .allowed(SOME_LIST)
        .doc("The folder of the data, when `log.dirs` is not set."),
    node("log.dir.failure.timeout.ms", Long).default("30000").at_least(1).doc(
        "A broker that leads partitions of a failed log directory stops when it cannot report the failure to its controller for this long.",
    ),
    node("log.dirs", List)
        .allowed(SOME_LIST)
        .doc("The folders of the data, one per disk. A disk that fails takes only its own partitions with it."),
    node("log.flush.interval.messages", Long).default("9223372036854775807").at_least(1).cluster_wide().doc(
        "A log is flushed at the latest after so many records. What was acknowledged is flushed earlier: see \
             `klamm.flush.before.ack`.",
    ),
    node("log.flush.interval.ms", Long)
        .cluster_wide()
        .doc("The longest time until a log is flushed. Unset, `log.flush.scheduler.interval.ms` applies."),
    node("log.flush.offset.checkpoint.interval.ms", Int)
        .default("60000")
        .at_least(0)
        .doc("How often the recovery points are written, from which a crashed node checks its logs."),
    node("log.flush.scheduler.interval.ms", Long)
        .default("9223372036854775807")
        .doc("How often the broker checks whether a log must be flushed."),
    node("log.flush.start.offset.checkpoint.interval.ms", Int)
        .default("60000")
        .at_least(0)
        .doc("How often the log start offsets are written."),
    node("log.index.interval.bytes", Int)
        .default("4096")
        .at_least(0)
        .cluster_wide()
        .doc("The bytes of log between two entries of an index."),
    node("log.index.size.max.bytes", Int)
        .default("10485760")
        .at_least(4)
        .cluster_wide()
        .doc("The largest size of an offset or time index. A segment rolls when one is full."),
    node("log.initial.task.delay.ms", Long)
        .default("30000")
        .at_least(0)
        .internal()
        .doc("How long after the start the first retention, flush and checkpoint run."),
    node("log.local.retention.bytes", Long).default("-2").at_least(-2).cluster_wide(),
    node("log.local.retention.ms", Long).default("-2").at_least(-2).cluster_wide(),
    node("log.message.timestamp.after.max.ms", Long)
        .default("3600000")
        .at_least(0)
        .cluster_wide()
        .doc("How far a producer's timestamp may lie in the future."),
    node("log.message.timestamp.before.max.ms", Long)
        .default("9223372036854775807")
        .at_least(0)
        .cluster_wide()
        .doc("How far a producer's timestamp may lie in the past."),
    node("log.message.timestamp.type", String)
        .default("CreateTime")
        .one_of(&["CreateTime", "LogAppendTime"])
        .cluster_wide()
        .doc(
            "Whether a record keeps its producer's time (CreateTime) or gets the time of its append \
             (LogAppendTime).",
        ),
    node("log.preallocate", Boolean)
        .default("false")
        .cluster_wide()
        .doc("Whether a new segment is given its full size at once."),
    node("log.retention.bytes", Long)
        .default("-1")
        .cluster_wide()
        .doc("The size up to which a partition keeps old segments; -1 is no limit."),
    node("log.retention.check.interval.ms", Long)
        .default("300000")
        .at_least(1)
        .doc("How often the broker checks whether segments can be deleted."),
    node("log.retention.hours", Int).default("168").doc(
        "How long segments are kept, in hours, when neither `log.retention.ms` nor `log.retention.minutes` is \
             set.",
    ),
    node("log.retention.minutes", Int)
        .doc("How long segments are kept, in minutes, when `log.retention.ms` is not set."),
    node("log.retention.ms", Long).cluster_wide().doc("How long segments are kept; -1 is no limit."),
    node("log.roll.hours", Int)
        .default("168")
        .at_least(1)
        .doc("The age of a segment's first record, in hours, at which the segment rolls, when `log.roll.ms` is not set."),
    node("log.roll.jitter.hours", Int)
        .default("0")
        .at_least(0)
        .doc("The largest random reduction of `log.roll.hours`, in hours, so that logs do not all roll at once."),
    node("log.roll.jitter.ms", Long)
        .cluster_wide()
        .doc("The largest random reduction of `log.roll.ms`, so that logs do not all roll at once."),
    node("log.roll.ms", Long).cluster_wide().doc("The age of a segment's first record at which the segment rolls."),
    node("log.segment.bytes", Int)
        .default("1073741824")
        .at_least(1048576)
        .cluster_wide()
        .doc("The size at which a segment rolls."),
    node("log.segment.delete.delay.ms", Long)
        .default("60000")
        .at_least(0)
        .cluster_wide()
        .doc("How long the files of a deleted segment stay before they are removed."),
    node("max.connection.creation.rate", Int)
        .default("2147483647")
        .at_least(0)
        .cluster_wide()
        .doc("The most new connections a second. Connections above the rate wait."),
    node("max.connections", Int)
        .default("2147483647")
        .at_least(0)
        .cluster_wide()
        .doc("The most connections at a time. A further one waits until another is closed."),
    node("max.connections.per.ip", Int)
        .default("2147483647")
        .at_least(0)
        .cluster_wide()
        .doc("The most simultaneous connections from one address."),
    node("max.connections.per.ip.overrides", String)
        .default("")
        .cluster_wide()
        .doc("Other limits for single addresses, as host:count,...."),
    node("max.incremental.fetch.session.cache.slots", Int)
        .default("1000")
        .at_least(0)
        .doc("The number of fetch sessions that are remembered."),
    node("max.request.partition.size.limit", Int)
        .default("2000")
        .at_least(1)
        .doc("The most partitions in one DescribeTopicPartitions response."),
    node("message.max.bytes", Int)
        .default("1048588")
        .at_least(0)
        .cluster_wide()
        .doc("The largest batch, after compression, that is accepted. Topics set it as `max.message.bytes`."),
    node("metadata.log.dir", String).doc("The folder of the metadata log; unset, the first of `log.dirs`."),
    node("metadata.log.max.record.bytes.between.snapshots", Long)
        .default("20971520")
        .at_least(1)
        .doc("A snapshot of the metadata is written after this many bytes of new records."),
    node("metadata.log.max.snapshot.interval.ms", Long)
        .default("3600000")
        .at_least(0)
        .doc("A snapshot of the metadata is written after this time when there are new records; 0 turns this off."),
    node("metadata.log.segment.bytes", Int)
        .default("1073741824")
        .at_least(8388608)
        .doc("The size at which a segment of the metadata log rolls."),
    node("metadata.log.segment.ms", Long)
        .default("604800000")
        .doc("The age at which a segment of the metadata log rolls."),
    node("metadata.max.idle.interval.ms", Int)
        .default("500")
        .at_least(0)
        .doc("How often the active controller writes an empty record when nothing else happens; 0 for never."),
    node("metadata.max.retention.bytes", Long)
        .default("104857600")
        .doc("The size of metadata log and snapshots above which what a snapshot covers is deleted."),
    node("metadata.max.retention.ms", Long)
        .default("604800000")
        .doc("The age above which metadata log and snapshots that a newer snapshot covers are deleted."),
    node("metric.reporters", List)
        .default("org.apache.kafka.common.metrics.JmxReporter")
        .allowed(ANY_LIST)
        .cluster_wide(),
    node("metrics.num.samples", Int).default("2").at_least(1),
    node("metrics.recording.level", String).default("INFO"),
    node("metrics.sample.window.ms", Long).default("30000").at_least(1),
    node("min.insync.replicas", Int)
        .default("1")
        .at_least(1)
        .cluster_wide()
        .doc("The number of in-sync replicas below which a produce with acks=all is refused."),
    node("node.id", Int).required().at_least(0).doc("The number of this node, unique in the cluster."),
    node("num.io.threads", Int).default("8").at_least(1).cluster_wide(),
    node("num.network.threads", Int).default("3").at_least(1).cluster_wide(),
    node("num.partitions", Int)
        .default("1")
        .at_least(1)
        .doc("The number of partitions of a topic whose creator does not specify it."),
    node("num.recovery.threads.per.data.dir", Int)
        .default("2")
        .at_least(1)
        .cluster_wide()
        .doc("The number of threads per log directory that recover logs at start and flush them at shutdown."),
    node("num.replica.alter.log.dirs.threads", Int)
        .doc("The number of threads that move replicas between log directories."),
    node("num.replica.fetchers", Int).default("1").at_least(1).cluster_wide()
        .doc("The number of connections with which a broker fetches from each other broker."),
    node("offset.metadata.max.bytes", Int)
        .default("4096")
        .doc("The longest text that may be committed along with an offset."),
    node("offsets.commit.timeout.ms", Int)
        .default("5000")
        .at_least(1)
        .doc("How long a commit of offsets may take until its record is replicated."),
    node("offsets.load.buffer.size", Int)
        .default("5242880")
        .at_least(1)
        .doc("How many bytes are read at a time while the offsets of groups are loaded."),
    node("offsets.retention.check.interval.ms", Long)
        .default("600000")
        .at_least(1)
        .doc("How often the coordinator checks whether committed offsets have expired."),
    node("offsets.retention.minutes", Int)
        .default("10080")
        .at_least(1)
        .doc("How long the offsets of a group are kept after its last member left."),
    node("offsets.topic.compression.codec", Int)
        .default("0")
        .doc("How the records of `__consumer_offsets` are compressed: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
    node("offsets.topic.num.partitions", Int)
        .default("50")
        .at_least(1)
        .doc("The number of partitions of `__consumer_offsets`; do not change it once the topic exists."),
    node("offsets.topic.replication.factor", Short)
        .default("3")
        .at_least(1)
        .doc("The number of replicas of `__consumer_offsets`. The topic is not created while fewer brokers are available."),
    node("offsets.topic.segment.bytes", Int)
        .default("104857600")
        .at_least(1)
        .doc("The segment size of `__consumer_offsets`."),
    node("principal.builder.class", Class)
        .default("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder")
        .per_broker(),
    node("process.roles", List)
        .required()
        .allowed(Allowed::ListOf { entries: &["broker", "controller"], may_be_empty: false })
        .doc("What this node is: `broker`, `controller`, or both."),
    node("producer.id.expiration.check.interval.ms", Int)
        .default("600000")
        .at_least(1)
        .internal()
        .doc("How often producers that were silent for `producer.id.expiration.ms` are removed."),
    node("producer.id.expiration.ms", Int)
        .default("86400000")
        .at_least(1)
        .cluster_wide()
        .doc("How long the sequence numbers of a silent idempotent producer are remembered."),
    node("producer.purgatory.purge.interval.requests", Int).default("1000"),
    node("queued.max.request.bytes", Long)
        .default("-1")
        .doc("The most bytes of requests in the queue; -1 for no limit."),
    node("queued.max.requests", Int)
        .default("500")
        .at_least(1)
        .doc("The most requests that wait to be handled before connections are read no further."),
    node("quota.window.num", Int)
        .default("11")
        .at_least(1)
        .doc("The number of windows over which the rates of quotas and of `max.connection.creation.rate` are measured."),
    node("quota.window.size.seconds", Int)
        .default("1")
        .at_least(1)
        .doc("How long each of the windows of `quota.window.num` is."),
    node("remote.fetch.max.wait.ms", Int).default("500").at_least(1).cluster_wide(),
    node("remote.list.offsets.request.timeout.ms", Long).default("30000").at_least(1).cluster_wide(),
    node("remote.log.index.file.cache.total.size.bytes", Long).default("1073741824").at_least(1).cluster_wide(),
    node("remote.log.index.file.cache.ttl.ms", Long).default("900000").at_least(-1).internal(),
    node("remote.log.manager.copier.thread.pool.size", Int).default("10").at_least(1).cluster_wide(),
    node("remote.log.manager.copy.max.bytes.per.second", Long)
        .default("9223372036854775807")
        .at_least(1)
        .cluster_wide(),
    node("remote.log.manager.copy.quota.window.num", Int).default("11").at_least(1),
    node("remote.log.manager.copy.quota.window.size.seconds", Int).default("1").at_least(1),
    node("remote.log.manager.expiration.thread.pool.size", Int).default("10").at_least(1).cluster_wide(),
    node("remote.log.manager.fetch.max.bytes.per.second", Long)
        .default("9223372036854775807")
        .at_least(1)
        .cluster_wide(),
    node("remote.log.manager.fetch.quota.window.num", Int).default("11").at_least(1),
    node("remote.log.manager.fetch.quota.window.size.seconds", Int).default("1").at_least(1),
    node("remote.log.manager.follower.thread.pool.size", Int).default("2").at_least(1).cluster_wide(),
    node("remote.log.manager.task.interval.ms", Long).default("30000").at_least(1),
    node("remote.log.manager.task.retry.backoff.max.ms", Long).default("30000").at_least(1).internal(),
    node("remote.log.manager.task.retry.backoff.ms", Long).default("500").at_least(1).internal(),
    node("remote.log.manager.task.retry.jitter", Double)
        .default("0.2")
        .allowed(Allowed::Fraction(0.0, 0.5))
        .internal(),
    node("remote.log.manager.thread.pool.size", Int).default("2").at_least(1),
    node("remote.log.metadata.custom.metadata.max.bytes", Int).default("128").at_least(0),
    node("remote.log.metadata.manager.class.name", String)
        .default("org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager")
        .allowed(Allowed::NonEmpty),
    node("remote.log.metadata.manager.class.path", String),
    node("remote.log.metadata.manager.impl.prefix", String).default("rlmm.config.").allowed(Allowed::NonEmpty),
    node("remote.log.metadata.manager.listener.name", String).allowed(Allowed::NonEmpty),
    node("remote.log.reader.max.pending.tasks", Int).default("100").at_least(1),
    node("remote.log.reader.threads", Int).default("10").at_least(1).cluster_wide(),
    node("remote.log.storage.manager.class.name", String).allowed(Allowed::NonEmpty),
    node("remote.log.storage.manager.class.path", String),
    node("remote.log.storage.manager.impl.prefix", String).default("rsm.config.").allowed(Allowed::NonEmpty),
    node("remote.log.storage.system.enable", Boolean).default("false"),
    node("replica.alter.log.dirs.io.max.bytes.per.second", Long)
        .default("9223372036854775807")
        .at_least(0)
        .cluster_wide()
        .dynamic_only()
        .doc("The most bytes a second that moves between log directories may copy."),
    node("replica.fetch.backoff.ms", Int).default("1000").at_least(0)
        .doc("The pause, in milliseconds, of a replica fetcher after a partition's fetch failed."),
    node("replica.fetch.max.bytes", Int).default("1048576").at_least(0)
        .doc("The bytes that a follower asks for in each partition; a larger first batch is returned all the same."),
    node("replica.fetch.min.bytes", Int).default("1")
        .doc("The fewest bytes for which a follower's fetch is answered before its wait is over."),
    node("replica.fetch.response.max.bytes", Int).default("10485760").at_least(0)
        .doc("The bytes that a follower asks for in one answer; a larger first batch is returned all the same."),
    node("replica.fetch.wait.max.ms", Int).default("500")
        .doc("The longest time, in milliseconds, that a follower's fetch waits for records."),
    node("replica.high.watermark.checkpoint.interval.ms", Long)
        .default("5000")
        .doc("How often the high watermarks are written."),
    node("replica.lag.time.max.ms", Long).default("30000")
        .doc("The time, in milliseconds, after which a follower that has not caught up leaves the ISR."),
    node("replica.selector.class", String)
        .doc("The class that chooses the replica from which a consumer reads (KIP-392). Empty: the leader."),
    node("replica.socket.receive.buffer.bytes", Int).default("65536"),
    node("replica.socket.timeout.ms", Int).default("30000")
        .doc("The longest time, in milliseconds, that a replica fetcher waits for a connection or an answer."),
    node("replication.quota.window.num", Int).default("11").at_least(1).doc("The number of samples that the replication limits keep."),
    node("replication.quota.window.size.seconds", Int).default("1").at_least(1).doc("The length, in seconds, of each sample of the replication limits."),
    node("request.timeout.ms", Int)
        .default("30000")
        .doc("How long the controller may take to create a topic that the broker itself requests."),
    node("sasl.client.callback.handler.class", Class),
    node("sasl.enabled.mechanisms", List).default("GSSAPI").allowed(ANY_LIST).per_broker(),
    node("sasl.jaas.config", Password).per_broker(),
    node("sasl.kerberos.kinit.cmd", String).default("/usr/bin/kinit").per_broker(),
    node("sasl.kerberos.min.time.before.relogin", Long).default("60000").per_broker(),
    node("sasl.kerberos.principal.to.local.rules", List).default("DEFAULT").allowed(ANY_LIST).per_broker(),
    node("sasl.kerberos.service.name", String).per_broker(),
    node("sasl.kerberos.ticket.renew.jitter", Double).default("0.05").per_broker(),
    node("sasl.kerberos.ticket.renew.window.factor", Double).default("0.8").per_broker(),
    node("sasl.login.callback.handler.class", Class),
    node("sasl.login.class", Class),
    node("sasl.login.connect.timeout.ms", Int),
    node("sasl.login.read.timeout.ms", Int),
    node("sasl.login.refresh.buffer.seconds", Short).default("300").per_broker(),
    node("sasl.login.refresh.min.period.seconds", Short).default("60").per_broker(),
    node("sasl.login.refresh.window.factor", Double).default("0.8").per_broker(),
    node("sasl.login.refresh.window.jitter", Double).default("0.05").per_broker(),
    node("sasl.login.retry.backoff.max.ms", Long).default("10000"),
    node("sasl.login.retry.backoff.ms", Long).default("100"),
    node("sasl.mechanism.controller.protocol", String).default("GSSAPI"),
    node("sasl.mechanism.inter.broker.protocol", String).default("GSSAPI").per_broker(),
    node("sasl.oauthbearer.assertion.algorithm", String)
        .default("RS256")
        .allowed(Allowed::OneOfIgnoringCase(&["ES256", "RS256"])),
    node("sasl.oauthbearer.assertion.claim.aud", String),
    node("sasl.oauthbearer.assertion.claim.exp.seconds", Int).default("300").between(0, 86400),
    node("sasl.oauthbearer.assertion.claim.iss", String),
    node("sasl.oauthbearer.assertion.claim.jti.include", Boolean).default("false"),
    node("sasl.oauthbearer.assertion.claim.nbf.seconds", Int).default("60").between(0, 3600),
    node("sasl.oauthbearer.assertion.claim.sub", String),
    node("sasl.oauthbearer.assertion.file", String),
    node("sasl.oauthbearer.assertion.private.key.file", String),
    node("sasl.oauthbearer.assertion.private.key.passphrase", Password),
    node("sasl.oauthbearer.assertion.template.file", String),
    node("sasl.oauthbearer.client.credentials.client.id", String),
    node("sasl.oauthbearer.client.credentials.client.secret", Password),
    node("sasl.oauthbearer.clock.skew.seconds", Int).default("30"),
    node("sasl.oauthbearer.expected.audience", List).default("").allowed(ANY_LIST),
    node("sasl.oauthbearer.expected.issuer", String),
    node("sasl.oauthbearer.jwks.endpoint.refresh.ms", Long).default("3600000"),
    node("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Long).default("10000"),
    node("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Long).default("100"),
    node("sasl.oauthbearer.jwks.endpoint.url", String),
    node("sasl.oauthbearer.jwt.retriever.class", Class)
        .default("org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"),
    node("sasl.oauthbearer.jwt.validator.class", Class)
        .default("org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"),
    node("sasl.oauthbearer.scope", String),
    node("sasl.oauthbearer.scope.claim.name", String).default("scope"),
    node("sasl.oauthbearer.sub.claim.name", String).default("sub"),
    node("sasl.oauthbearer.token.endpoint.url", String),
    node("sasl.server.callback.handler.class", Class),
    node("sasl.server.max.receive.size", Int).default("524288"),
    node("security.inter.broker.protocol", String)
        .default("PLAINTEXT")
        .one_of(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
        .doc("The security protocol among brokers, when `inter.broker.listener.name` is not set."),
    node("security.providers", String),
    node("server.max.startup.time.ms", Long).default("9223372036854775807").at_least(0).internal(),
    node("share.coordinator.append.linger.ms", Int).default("-1").at_least(-1),
    node("share.coordinator.cached.buffer.max.bytes", Int).default("1048588").at_least(524288).cluster_wide(),
    node("share.coordinator.cold.partition.snapshot.interval.ms", Int).default("300000").at_least(1).internal().doc("How often, in milliseconds, the share coordinator writes a snapshot of a share partition that did not change."),
    node("share.coordinator.load.buffer.size", Int).default("5242880").at_least(1).doc("The size, in bytes, of the reads with which the share coordinator loads its state."),
    node("share.coordinator.snapshot.update.records.per.snapshot", Int).default("500").between(0, 500).doc("After how many update records of a share partition a snapshot is written."),
    node("share.coordinator.state.topic.compression.codec", Int).default("0").doc("The compression of the share coordinator's topic, as the number of a codec."),
    node("share.coordinator.state.topic.min.isr", Short).default("2").at_least(1).doc("The min.insync.replicas of the share coordinator's topic."),
    node("share.coordinator.state.topic.num.partitions", Int).default("50").at_least(1).doc("The number of partitions of the share coordinator's topic."),
    node("share.coordinator.state.topic.prune.interval.ms", Int).default("300000").at_least(1).internal().doc("How often, in milliseconds, records that are no longer needed are deleted from the share coordinator's topic."),
    node("share.coordinator.state.topic.replication.factor", Short).default("3").at_least(1).doc("The number of replicas of the share coordinator's topic."),
    node("share.coordinator.state.topic.segment.bytes", Int).default("104857600").at_least(1).doc("The segment size, in bytes, of the share coordinator's topic."),
    node("share.coordinator.threads", Int).default("1").at_least(1),
    node("share.coordinator.write.timeout.ms", Int).default("5000").at_least(1).doc("The longest time, in milliseconds, that the share coordinator waits for a write to be committed."),
    node("share.fetch.purgatory.purge.interval.requests", Int).default("1000"),
    node("socket.connection.setup.timeout.max.ms", Long)
        .default("30000")
        .doc("The longest connection timeout, after repeated failures."),
    node("socket.connection.setup.timeout.ms", Long)
        .default("10000")
        .doc("The timeout of a new connection to another node; it doubles after each failure."),
    node("socket.listen.backlog.size", Int)
        .default("50")
        .at_least(1)
        .doc("The number of connections that the kernel holds until they are accepted."),
    node("socket.receive.buffer.bytes", Int)
        .default("102400")
        .doc("The receive buffer of a connection; -1, and the default, leave it to the kernel."),
    node("socket.request.max.bytes", Int)
        .default("104857600")
        .at_least(1)
        .doc("The largest request that is read. A larger one closes the connection."),
    node("socket.send.buffer.bytes", Int)
        .default("102400")
        .doc("The send buffer of a connection; -1, and the default, leave it to the kernel."),
    node("ssl.allow.dn.changes", Boolean).default("false"),
    node("ssl.allow.san.changes", Boolean).default("false"),
    node("ssl.cipher.suites", List).default("").allowed(ANY_LIST).per_broker(),
    node("ssl.client.auth", String).default("none").one_of(&["required", "requested", "none"]).per_broker(),
    node("ssl.enabled.protocols", List).default("TLSv1.2,TLSv1.3").allowed(ANY_LIST).per_broker(),
    node("ssl.endpoint.identification.algorithm", String).default("https").per_broker(),
    node("ssl.engine.factory.class", Class).per_broker(),
    node("ssl.key.password", Password).per_broker(),
    node("ssl.keymanager.algorithm", String).default("SunX509").per_broker(),
    node("ssl.keystore.certificate.chain", Password).per_broker(),
    node("ssl.keystore.key", Password).per_broker(),
    node("ssl.keystore.location", String).per_broker(),
    node("ssl.keystore.password", Password).per_broker(),
    node("ssl.keystore.type", String).default("JKS").per_broker(),
    node("ssl.principal.mapping.rules", String).default("DEFAULT"),
    node("ssl.protocol", String).default("TLSv1.3").per_broker(),
    node("ssl.provider", String).per_broker(),
    node("ssl.secure.random.implementation", String).per_broker(),
    node("ssl.trustmanager.algorithm", String).default("PKIX").per_broker(),
    node("ssl.truststore.certificates", Password).per_broker(),
    node("ssl.truststore.location", String).per_broker(),
    node("ssl.truststore.password", Password).per_broker(),
    node("ssl.truststore.type", String).default("JKS").per_broker(),
    node("telemetry.max.bytes", Int).default("1048576").at_least(1),
    node("transaction.abort.timed.out.transaction.cleanup.interval.ms", Int)
        .default("10000")
        .at_least(1)
        .doc("How often transactions that exceeded their time-out are aborted."),
    node("transaction.max.timeout.ms", Int)
        .default("900000")
        .at_least(1)
        .doc("The longest transaction time-out that a producer may ask for."),
    node("transaction.partition.verification.enable", Boolean)
        .default("true")
        .cluster_wide()
        .doc("Whether a partition asks the transaction coordinator before it appends the first records of a transaction (KIP-890)."),
    node("transaction.remove.expired.transaction.cleanup.interval.ms", Int)
        .default("3600000")
        .at_least(1)
        .doc("How often transactional ids that are unused for `transactional.id.expiration.ms` are removed."),
    node("transaction.state.log.load.buffer.size", Int)
        .default("5242880")
        .at_least(1)
        .doc("The size of the reads with which the transaction coordinator loads a partition."),
    node("transaction.state.log.min.isr", Int)
        .default("2")
        .at_least(1)
        .doc("The `min.insync.replicas` of `__transaction_state`."),
    node("transaction.state.log.num.partitions", Int)
        .default("50")
        .at_least(1)
        .doc("The number of partitions of `__transaction_state`; do not change it once the topic exists."),
    node("transaction.state.log.replication.factor", Short)
        .default("3")
        .at_least(1)
        .doc("The number of replicas of `__transaction_state`. The topic is not created while fewer brokers are available."),
    node("transaction.state.log.segment.bytes", Int)
        .default("104857600")
        .at_least(1)
        .doc("The segment size of `__transaction_state`."),
    node("transaction.two.phase.commit.enable", Boolean)
        .default("false")
        .doc("Whether producers may take part in two-phase commits (KIP-939): their transactions never time out."),
    node("transactional.id.expiration.ms", Int)
        .default("604800000")
        .at_least(1)
        .doc("How long a transactional id is kept after its last transaction."),
    node("unclean.leader.election.enable", Boolean)
        .default("false")
        .cluster_wide()
        .doc("Whether a replica that is not in sync may become leader when no other is left, losing records."),
    node("unclean.leader.election.interval.ms", Long)
        .default("300000")
        .at_least(1)
        .internal()
        .doc("How often the controller checks partitions without a leader, where `unclean.leader.election.enable` is on."),
    node("unstable.api.versions.enable", Boolean).default("false").internal(),
    node("unstable.feature.versions.enable", Boolean).default("false").internal(),
];
