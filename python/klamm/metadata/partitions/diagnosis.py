"""The final state of a partition: its leader, or why it has none and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm._engine.metadata import Image, PartitionInfo
from klamm.metadata.log.history import State
from klamm.metadata.log.moments import time_text
from klamm.metadata.partitions.broker_events import BrokerEvent, BrokerEvents
from klamm.metadata.rendering.descriptions import ids_text
from klamm.protocol.resource_types import ResourceType

_UNCLEAN: Final = "unclean.leader.election.enable"


def diagnose(
    end: State, topic: str, partition: int, events: BrokerEvents, *, is_deleted: bool
) -> tuple[str, list[str]]:
    """The state in a sentence, and advice."""
    image = end.image.stable
    topic_id = image.topic_id(topic)
    info = None if topic_id is None else image.partition(topic_id, partition)
    if info is None:
        return ("the topic is deleted" if is_deleted else "the topic does not exist yet"), []
    if info.leader >= 0:
        return _led(image, info), []
    return _leaderless(end, topic, info, events)


def _led(image: Image, info: PartitionInfo) -> str:
    out = [one for one in info.replicas if one not in info.isr]
    text = f"broker {info.leader} leads it in epoch {info.leader_epoch}, in sync are {ids_text(info.isr)}"
    if out:
        text += f"; not in sync: {ids_text(out)}"
    if info.leader_recovery_state:
        text += "; the leader still recovers from an unclean election"
    return text


def _leaderless(end: State, topic: str, info: PartitionInfo, events: BrokerEvents) -> tuple[str, list[str]]:
    image = end.image.stable
    eligible = [*info.isr, *(one for one in info.elr if one not in info.isr)]
    others = [one for one in info.replicas if one not in eligible]
    reasons = [_broker_now(image, info, one, events, end.offset) for one in eligible]
    if eligible:
        text = (
            f"no leader: only {_or(eligible)} may lead, because no other replica has all records; {'; '.join(reasons)}"
        )
    else:
        text = "no leader: no replica is known to have all records" + (
            f"; the last that led was {ids_text(info.last_known_elr)}" if info.last_known_elr else ""
        )
    advice = [f"start broker {_or(eligible)} again, with its directories as they are"] if eligible else []
    alive = [one for one in others if _is_there(image, info, one)]
    if alive:
        allowed = str(_allows_unclean(image, topic)).lower()
        advice.append(
            f"broker {_or(alive)} is running but may lack records ({_UNCLEAN} is {allowed}): an unclean election "
            f"(kafka-leader-election --election-type unclean --topic {topic} --partition {info.index}) gives up "
            f"what only {ids_text(eligible or info.last_known_elr)} had"
        )
    else:
        advice += [_broker_now(image, info, one, events, end.offset) for one in others]
    return text, advice


def _allows_unclean(image: Image, topic: str) -> bool:
    value = image.config(ResourceType.TOPIC, topic, _UNCLEAN) or image.config(ResourceType.BROKER, "", _UNCLEAN)
    return value == "true"


def _is_there(image: Image, info: PartitionInfo, broker_id: int) -> bool:
    broker = image.broker(broker_id)
    return broker is not None and broker.is_active and _has_directory(image, info, broker_id)


def _has_directory(image: Image, info: PartitionInfo, broker_id: int) -> bool:
    broker = image.broker(broker_id)
    directory = dict(zip(info.replicas, info.directories, strict=False)).get(broker_id)
    return broker is None or directory is None or broker.has_online_dir(directory)


def _broker_now(image: Image, info: PartitionInfo, broker_id: int, events: BrokerEvents, upto: int) -> str:
    broker = image.broker(broker_id)
    if broker is None:
        return f"broker {broker_id} is not registered{_since(events.latest(broker_id, upto, ['unregistered']))}"
    if broker.in_controlled_shutdown:
        return f"broker {broker_id} has shut down{_since(events.latest(broker_id, upto, ['shutting down']))}"
    if broker.fenced:
        kinds = ["fenced", "registered"]
        return f"broker {broker_id} is fenced{_since(events.latest(broker_id, upto, kinds))}"
    if not _has_directory(image, info, broker_id):
        since = _since(events.latest(broker_id, upto, ["log directories"]))
        return f"broker {broker_id} is running, but the log directory of its replica is offline{since}"
    return f"broker {broker_id} is running, and the controller should elect it"


def _since(event: BrokerEvent | None) -> str:
    return "" if event is None else f" since offset {event.offset}, {time_text(event.timestamp_ms)}"


def _or(ids: Sequence[int]) -> str:
    return " or ".join(map(str, ids))
