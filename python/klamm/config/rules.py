"""The rules between the keys of a node, as in Apache Kafka, and the values that klamm does not support yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from klamm._engine.config import config_keys, find_config_key, format_config
from klamm.config.listeners import parse_protocol_map
from klamm.config.node_config import BROKER, CONTROLLER, NodeConfig, NodeConfigError, parse
from klamm.config.ranges import check_ranges

_NOT_YET: Final[Mapping[str, tuple[str, str]]] = {
    "authorizer.class.name": ("", "authorization"),
    "alter.config.policy.class.name": ("", "policies"),
    "client.quota.callback.class": ("", "quotas"),
    "config.providers": ("", "configuration providers"),
    "create.topic.policy.class.name": ("", "policies"),
    "remote.log.storage.system.enable": ("false", "tiered storage"),
}
"""Keys that must not be ignored silently, because they change guarantees: the accepted value, the missing feature."""
REPLICA_SELECTORS: Final = (
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)
"""The accepted values of `replica.selector.class` (KIP-392)."""


def checked(given: Mapping[str, str]) -> NodeConfig:
    """The configuration of these keys and values, checked as a whole. Raises NodeConfigError."""
    config = parse(given)
    checks = (_check_ids, check_ranges, _check_orders, _check_times, _check_limits, _check_roles, _check_names)
    for check in checks:
        check(config)
    return config


def check_supported(config: NodeConfig) -> None:
    """Refuse values that Apache Kafka supports and klamm does not yet. Raises NodeConfigError."""
    for listener in config.listeners:
        if listener.protocol != "PLAINTEXT":
            raise NodeConfigError(
                f"listener {listener} speaks {listener.protocol}: TLS and SASL are not supported yet, use PLAINTEXT"
            )
    selector = config.optional_text("replica.selector.class")
    if selector and selector not in REPLICA_SELECTORS:
        raise NodeConfigError(
            f"replica.selector.class={selector}: klamm runs no Java class, use {' or '.join(REPLICA_SELECTORS)}"
        )
    for name, (accepted, what) in _NOT_YET.items():
        value = format_config("node", name, config.given.get(name, accepted))
        if value != accepted:
            raise NodeConfigError(f"{name}={value}: {what} are not supported yet, remove the key")


def warnings(config: NodeConfig) -> Iterator[str]:
    """Warnings that are logged before the node serves."""
    for name in config.given:
        if not is_known(name):
            yield f"unknown configuration {name} is ignored{_suggestion(name)}"
    for listener in config.listeners:
        if listener.is_open:
            yield f"listener {listener} is open to every network that this machine is on, without authentication"
    interval, timeout = "broker.heartbeat.interval.ms", "broker.session.timeout.ms"
    if config.integer(interval) * 2 > config.integer(timeout):
        yield f"{interval}={config.value(interval)} should be at most half of {timeout}={config.value(timeout)}"
    if not config.is_controller:
        yield from _warnings_of_broker(config)


def _warnings_of_broker(config: NodeConfig) -> Iterator[str]:
    """Keys of a broker alone that have no effect."""
    first, *more = config.controller_listener_names
    if more:
        yield f"a broker uses the first of controller.listener.names, {first}, and not {', '.join(more)}"
    for name in ("num.partitions", "default.replication.factor"):
        if name in config.given:
            yield f"{name} counts on controllers, who create topics: set it there as well"


def without_effect(config: NodeConfig) -> list[str]:
    """The keys that were set and are known, but change nothing in klamm yet."""
    keys = ((name, find_config_key("node", name)) for name in config.given)
    return [name for name, key in keys if key is not None and not key.is_honoured and name not in _NOT_YET]


def is_known(name: str) -> bool:
    """Whether a key is one of a node's, alone or as `listener.name.<listener>.<key>`."""
    if find_config_key("node", name) is not None:
        return True
    if not name.startswith("listener.name."):
        return False
    parts = name.split(".")[3:]
    # A SASL mechanism may stand between the listener and the key.
    return any(find_config_key("node", ".".join(parts[skipped:])) for skipped in (0, 1))


def _suggestion(name: str) -> str:
    import difflib  # Not at the top: needed only when something is wrong.

    known = [key.name for key in config_keys("node")]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
    return f"; did you mean {close[0]}?" if close else ""


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise NodeConfigError(complaint)


def _require_order(config: NodeConfig, names: Sequence[str]) -> None:
    """The values must not fall from one name to the next."""
    for low, high in itertools.pairwise(names):
        values = config.integer(low), config.integer(high)
        _require(values[0] <= values[1], f"{low}={values[0]} must not be larger than {high}={values[1]}")


def _check_ids(config: NodeConfig) -> None:
    broker_id = config.integer("broker.id")
    _require(broker_id == config.node_id, f"broker.id={broker_id} and node.id={config.node_id} must be the same")


def _check_orders(config: NodeConfig) -> None:
    _require_order(config, ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"))
    _require_order(config, ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"))
    _require_order(config, ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"))
    for kind in ("consumer", "share", "streams"):
        for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            _require_order(config, [f"group.{kind}.{bound}{what}" for bound in ("min.", "", "max.")])
        interval, timeout = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        values = config.integer(interval), config.integer(timeout)
        _require(values[0] < values[1], f"{interval}={values[0]} must be smaller than {timeout}={values[1]}")
    for what in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
        _require_order(config, [f"group.share.{bound}{what}" for bound in ("min.", "", "max.")])
    _require_order(config, ("group.share.max.size", "group.share.max.share.sessions"))
    _require_order(config, ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"))


def _check_times(config: NodeConfig) -> None:
    defaults = config.topic_defaults()
    for topic_key, node_key in (("segment.ms", "log.roll.ms"), ("retention.ms", "log.retention.ms")):
        value = int(defaults[topic_key])
        is_unlimited = topic_key == "retention.ms" and value == -1
        _require(value >= 1 or is_unlimited, f"{_said_by(config, node_key, value)}, but must be at least 1")
    jitter = int(defaults["segment.jitter.ms"])
    _require(jitter >= 0, f"{_said_by(config, 'log.roll.jitter.ms', jitter)}, but must not be negative")
    idle, delay = "connections.max.idle.ms", "connection.failed.authentication.delay.ms"
    idle_ms, delay_ms = config.integer(idle), config.integer(delay)
    _require(idle_ms < 0 or delay_ms < idle_ms, f"{delay}={delay_ms} must be smaller than {idle}={idle_ms}")


def _said_by(config: NodeConfig, name: str, value: int) -> str:
    """A time in milliseconds, and the keys that it may come from in other units."""
    keys = (name.removesuffix("ms") + unit for unit in ("minutes", "hours"))
    given = [f"{key}={config.given[key]}" for key in keys if key in config.given]
    return f"{name} comes to {value}" + (f" by {' and '.join(given)}" if given else "")


def _check_limits(config: NodeConfig) -> None:
    buffer, threads = config.integer("log.cleaner.dedupe.buffer.size"), config.integer("log.cleaner.threads")
    _require(
        threads == 0 or buffer // threads > 1024 * 1024,
        f"log.cleaner.dedupe.buffer.size={buffer} must be more than 1 MiB for each of log.cleaner.threads={threads}",
    )
    queued, frame = config.integer("queued.max.request.bytes"), config.integer("socket.request.max.bytes")
    _require(
        queued <= 0 or queued >= frame,
        f"queued.max.request.bytes={queued} must not be smaller than socket.request.max.bytes={frame}",
    )
    codec = config.integer("offsets.topic.compression.codec")
    _require(0 <= codec <= 4, f"offsets.topic.compression.codec={codec} must be 0 (none), 1, 2, 3 or 4")
    overrides = connection_overrides(config)
    _require(
        config.integer("max.connections.per.ip") != 0 or bool(overrides),
        "max.connections.per.ip=0 needs max.connections.per.ip.overrides, or no client can connect",
    )


def connection_overrides(config: NodeConfig) -> dict[str, int]:
    """`max.connections.per.ip.overrides` by host. Raises NodeConfigError."""
    name = "max.connections.per.ip.overrides"
    limits: dict[str, int] = {}
    for entry in filter(None, (entry.strip() for entry in config.text(name).split(","))):
        host, _, count = entry.rpartition(":")
        if not host or not count.isdecimal():
            raise NodeConfigError(f"Invalid value {entry} for configuration {name}: it must be host:count,...")
        limits[host] = int(count)
    return limits


def _check_roles(config: NodeConfig) -> None:
    _require(
        bool(config.voters or config.bootstrap_controllers),
        "either controller.quorum.voters or controller.quorum.bootstrap.servers must name the controllers",
    )
    if CONTROLLER in config.roles:
        _check_controller(config)
    else:
        _check_broker_alone(config)
    if BROKER in config.roles:
        _check_broker(config)
    else:
        clients = ", ".join(map(str, config.client_listeners))
        _require(
            not clients, f"process.roles=controller, but {clients} in listeners is not in controller.listener.names"
        )
        inter_broker = config.given.get("inter.broker.listener.name", "").upper()
        _require(
            inter_broker not in config.controller_listener_names,
            f"inter.broker.listener.name={inter_broker} is in controller.listener.names, but brokers do not use it: "
            "remove inter.broker.listener.name where process.roles=controller",
        )
    for listener in (*config.advertised_brokers, *config.advertised_controllers):
        _require(
            listener.host != "0.0.0.0",
            f"advertised.listeners has {listener}, to which no client can connect: name an address of this machine",
        )


def _check_controller(config: NodeConfig) -> None:
    ids = ", ".join(map(str, sorted(config.voters)))
    _require(
        not config.voters or config.node_id in config.voters,
        f"node.id={config.node_id} is a controller, but controller.quorum.voters names only {ids}",
    )
    bound = {listener.name for listener in config.listeners}
    for name in config.controller_listener_names:
        _require(name in bound, f"controller.listener.names has {name}, which listeners does not have")


def _check_broker_alone(config: NodeConfig) -> None:
    _require(
        config.node_id not in config.voters,
        f"node.id={config.node_id} is in controller.quorum.voters, but process.roles has no controller",
    )
    _require(
        bool(config.controller_listener_names),
        "controller.listener.names is empty, but must name the listener of the controllers that a broker asks",
    )
    protocols = config.given.get("listener.security.protocol.map")
    for name in config.controller_listener_names if protocols is not None else ():
        _require(
            name in parse_protocol_map(protocols or ""),
            f"controller.listener.names has {name}, which listener.security.protocol.map={protocols} does not have: "
            f"add {name}:PLAINTEXT",
        )
    shared = ", ".join(listener.name for listener in config.controller_listeners)
    _require(not shared, f"controller.listener.names has {shared}, but process.roles=broker cannot listen on it")
    joins = config.boolean("controller.quorum.auto.join.enable")
    _require(not joins, "controller.quorum.auto.join.enable=true needs the controller role")


def _check_broker(config: NodeConfig) -> None:
    advertised = {listener.name for listener in config.advertised_brokers}
    bound = {listener.name for listener in config.listeners}
    names = ", ".join(sorted(advertised))
    _require(bool(advertised), "no listener is left for clients: controller.listener.names has them all")
    _require(
        config.inter_broker_listener_name in advertised,
        f"inter.broker.listener.name comes to {config.inter_broker_listener_name}, but advertised are only {names}",
    )
    _require(advertised <= bound, f"advertised.listeners has {names}, but listeners only {', '.join(sorted(bound))}")


def _check_names(config: NodeConfig) -> None:
    _check_subset(config, "early.start.listeners", str.upper, {one.name for one in config.listeners}, "listeners")
    folders = {str(folder) for folder in config.log_dirs}
    if config.entries("cordoned.log.dirs") != ["*"]:
        _check_subset(config, "cordoned.log.dirs", str, folders, "log.dirs")
    protocols = config.entries("group.coordinator.rebalance.protocols")
    _require(
        "classic" in protocols,
        f"group.coordinator.rebalance.protocols={','.join(protocols)} must contain classic",
    )


def _check_subset(
    config: NodeConfig, name: str, normal: Callable[[str], str], allowed: set[str], allowed_by: str
) -> None:
    for entry in config.entries(name):
        _require(normal(entry) in allowed, f"{name} has {entry}, which {allowed_by} does not have")
