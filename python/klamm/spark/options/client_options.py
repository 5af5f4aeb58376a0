"""The `kafka.` options: which keys klamm's client receives, which have no effect, and which are refused.

Pure. Keys that are neither listed nor known to the client are refused by the client, which has the list of its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DEFAULT_CLIENT_ID: Final = "klamm-spark"

_REFUSED: Final = {
    "auto.offset.reset": "use startingOffsets; a restarted stream continues from its checkpoint",
    "enable.auto.commit": "offsets are stored in the query's checkpoint and not committed to the group",
    "interceptor.classes": "there is no Java consumer to intercept",
    "key.deserializer": "keys are bytes; decode the column key",
    "value.deserializer": "values are bytes; decode the column value",
}

_WITHOUT_MEANING: Final = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.in.flight.requests.per.connection",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "sasl.kerberos.service.name",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
"""Keys of a group member, of a Java process, or of pacing that the client does itself. Checksums are always checked.

Order does not depend on the number of requests in flight, because the producer is idempotent.
"""


_OF_PRODUCERS: Final = frozenset(
    {
        "acks",
        "batch.size",
        "buffer.memory",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delivery.timeout.ms",
        "enable.idempotence",
        "linger.ms",
        "max.block.ms",
        "max.request.size",
        "partitioner.class",
        "partitioner.ignore.keys",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
_OF_CONSUMERS: Final = frozenset(
    {
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "isolation.level",
        "max.partition.fetch.bytes",
    }
)
_REFUSED_OF_A_SINK: Final = {
    "interceptor.classes": "there is no Java producer to intercept",
    "key.serializer": "keys are bytes or text; encode the column key",
    "value.serializer": "values are bytes or text; encode the column value",
    "transactional.id": "use deliveryGuarantee=exactly-once, and transactionalIdPrefix for the ids of its tasks",
}


def client_options(given: Mapping[str, str], group_id_prefix: str | None = None) -> dict[str, str]:
    """The client's keys, from keys without `kafka.`. ValueError names the option, its value and the way out.

    The source does not join a group, so `group.id` and `groupIdPrefix` only serve as a `client.id` if none is set.
    """
    _refuse(given, _REFUSED)
    taken = {key: value for key, value in given.items() if key not in _WITHOUT_MEANING and key != "group.id"}
    name = given.get("group.id") or group_id_prefix or DEFAULT_CLIENT_ID
    return {"client.id": name} | taken


def producer_options(given: Mapping[str, str]) -> dict[str, str]:
    """The producer's keys; see `client_options`."""
    _refuse(given, _REFUSED_OF_A_SINK)
    return {"client.id": DEFAULT_CLIENT_ID} | {key: given[key] for key in given if key not in _WITHOUT_MEANING}


def without_effect(given: Mapping[str, str], *, is_sink: bool) -> list[str]:
    """The keys, without `kafka.`, that Kafka's clients know and that have no effect here."""
    unused = _WITHOUT_MEANING | (_OF_CONSUMERS if is_sink else _OF_PRODUCERS)
    return sorted(unused & given.keys())


def _refuse(given: Mapping[str, str], refused: Mapping[str, str]) -> None:
    for key, why in refused.items():
        if key in given:
            raise ValueError(f"option 'kafka.{key}' ('{given[key]}') is not supported: {why}")
