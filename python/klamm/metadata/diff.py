"""The differences between two states of a cluster, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from klamm._engine.metadata import Delta, Image
from klamm.metadata.log.history import State
from klamm.metadata.rendering.descriptions import ids_text, leader_text, resource_text, voters_text
from klamm.metadata.rendering.fields import config_value
from klamm.metadata.state import broker_fields, controller_fields, partition_fields


class Change(NamedTuple):
    """One difference: what kind of thing, which one, and what became of it."""

    kind: str
    name: str
    text: str


def changes_between(older: State, newer: State) -> list[Change]:
    """Everything that is different in `newer`; empty when nothing is."""
    before, after = older.image.stable, newer.image.stable
    delta = after.delta_since(before)
    return [
        *_quorum(older, newer),
        *_features(before, after, delta),
        *_nodes("controller", delta.changed_controllers, _controllers(before), _controllers(after)),
        *_nodes("broker", delta.changed_brokers, _brokers(before), _brokers(after)),
        *_topics(before, after, delta),
        *_configs(before, after, delta),
        *_rest(before, after, delta),
    ]


def _quorum(older: State, newer: State) -> Iterator[Change]:
    before, after = older.quorum, newer.quorum
    if (before.leader_id, before.leader_epoch) != (after.leader_id, after.leader_epoch):
        leaders = (f"{one.leader_id} in epoch {one.leader_epoch}" for one in (before, after))
        yield Change("quorum", "leader", " -> ".join(leaders))
    if before.voters != after.voters:
        yield Change("quorum", "voters", f"{voters_text(before.voters)} -> {voters_text(after.voters)}")
    if before.kraft_version != after.kraft_version:
        yield Change("quorum", "kraft.version", f"{before.kraft_version} -> {after.kraft_version}")


def _features(before: Image, after: Image, delta: Delta) -> Iterator[Change]:
    old, new = before.features(), after.features()
    for name in sorted(delta.changed_features):
        yield Change("feature", name, f"{old.get(name, 0)} -> {new.get(name, 0)}")


def _brokers(image: Image) -> dict[int, dict[str, Any]]:
    found = {one: image.broker(one) for one in image.broker_ids()}
    return {one: broker_fields(broker) for one, broker in found.items() if broker is not None}


def _controllers(image: Image) -> dict[int, dict[str, Any]]:
    found = {one: image.controller(one) for one in image.controller_ids()}
    return {one: controller_fields(controller) for one, controller in found.items() if controller is not None}


def _nodes(
    kind: str, changed: list[int], before: Mapping[int, dict[str, Any]], after: Mapping[int, dict[str, Any]]
) -> Iterator[Change]:
    for one in sorted(changed):
        old, new = before.get(one), after.get(one)
        if old is None and new is not None:
            state = f", {new['state']}" if "state" in new else ""
            yield Change(kind, str(one), f"registered{state}: {', '.join(new['endpoints'])}")
        elif old is not None and new is None:
            yield Change(kind, str(one), "unregistered")
        elif old is not None and new is not None:
            yield Change(kind, str(one), _differences(old, new) or "unchanged in the end")


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    found = [(name, old[name], value) for name, value in new.items() if old[name] != value]
    return ", ".join(f"{name.replace('_', ' ')} {_shown(before)} -> {_shown(after)}" for name, before, after in found)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ids_text(value) if all(isinstance(one, int) for one in value) else ", ".join(map(str, value))
    return "-" if value is None else str(value)


def _topics(before: Image, after: Image, delta: Delta) -> Iterator[Change]:
    for topic_id, name in sorted(delta.deleted_topics, key=lambda topic: topic[1]):
        count = before.topic_partition_count(topic_id)
        yield Change("topic", name, f"deleted, with {count} partition{'s' * (count != 1)}")
    for topic_id, name in sorted(delta.created_topics, key=lambda topic: topic[1]):
        count = after.topic_partition_count(topic_id)
        yield Change("topic", name, f"created, with {count} partition{'s' * (count != 1)}")
    for topic_id, name, indexes in sorted(delta.changed_topics, key=lambda topic: topic[1]):
        for index in sorted(indexes):
            yield from _partition(before, after, topic_id, name, index)


def _partition(before: Image, after: Image, topic_id: bytes, name: str, index: int) -> Iterator[Change]:
    old, new = before.partition(topic_id, index), after.partition(topic_id, index)
    if new is None:
        return
    if old is None:
        text = f"added: leader {leader_text(new.leader)}, replicas {ids_text(new.replicas)}"
    else:
        text = _differences(partition_fields(old), partition_fields(new))
    if text:
        yield Change("partition", f"{name}-{index}", text)


def _configs(before: Image, after: Image, delta: Delta) -> Iterator[Change]:
    for kind, name in sorted(delta.changed_configs):
        old, new = before.configs(kind, name), after.configs(kind, name)
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                values = (_shown(config_value(kind, key, values.get(key))) for values in (old, new))
                yield Change("config", resource_text(kind, name), f"{key}: {' -> '.join(values)}")


def _rest(before: Image, after: Image, delta: Delta) -> Iterator[Change]:
    for entity in delta.changed_quotas:
        name = ", ".join(f"{kind} {'default' if one is None else one}" for kind, one in sorted(entity.items()))
        yield Change("quota", name, f"{before.quota(entity) or '-'} -> {after.quota(entity) or '-'}")
    for acl_id in delta.changed_acls:
        known = after.acl(acl_id) or before.acl(acl_id)
        name = acl_id.hex() if known is None else f"{known.principal} on {known.resource_name}"
        yield Change("acl", name, "removed" if after.acl(acl_id) is None else "added")
    for mechanism, user in sorted(delta.changed_scram):
        gone = after.scram_credential(mechanism, user) is None
        yield Change("credential", user, "removed" if gone else "set")
    tokens = set(after.delegation_token_ids())
    for token in sorted(delta.changed_delegation_tokens):
        yield Change("delegation token", token, "set" if token in tokens else "removed")
    if delta.producer_ids_changed:
        yield Change("producer ids", "next", f"{_shown(before.next_producer_id)} -> {_shown(after.next_producer_id)}")
