"""Requests that no client sends: each field has invalid or extreme values, or ones that are valid for something else.

The controller responds to each, and its records describe a valid cluster: replicas differ, the ISR and the leader are
among them, epochs never decrease.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import random
import types
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import pytest
from tests.unit.controller.cluster import OPERATIONS, WITH_ELR, Cluster, registration, uuid

from klamm._engine.metadata import Image
from klamm.protocol.apis import APIS
from klamm.protocol.messages.registration import BrokerRegistrationRequest
from klamm.protocol.value import Value

SEEDS: Final = int(os.environ.get("KLAMM_HOSTILE_SEEDS", "30"))
REQUESTS: Final = 150
TOPICS: Final = ("t", "u")
# Every value fits its field: numbers are within INT16, except for a port, which is UINT16.
INTEGERS: Final = (-(2**15), -3, -2, -1, 0, 1, 2, 3, 4, 5, 2**15 - 1)
TEXTS: Final = (
    "t",
    "u",
    "v",
    "",
    "1",
    "2",
    "4",
    "a/b",
    "__consumer_offsets",
    "retention.ms",
    "metadata.version",
    "x" * 300,
)


class Hostile:
    """Draws random fields of requests."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster, self._rng = cluster, rng

    def request(self, cls: type) -> Any:
        """An object with random fields. Half of the broker registrations are valid except for one field."""
        hints = get_type_hints(cls)
        if cls is BrokerRegistrationRequest and self._rng.random() < 0.5:
            right = registration(self._rng.choice((1, 2, 3, 4)), incarnation=self._rng.randrange(100))
            name = self._rng.choice([each.name for each in dataclasses.fields(cls)])
            return dataclasses.replace(right, **{name: self._value(hints[name], name)})
        values = {}
        for each in dataclasses.fields(cls):
            has_default = each.default is not dataclasses.MISSING
            if not (has_default and self._rng.random() < 0.2):
                values[each.name] = self._value(hints[each.name], each.name)
        return cls(**values)

    def _value(self, hint: Any, name: str) -> Any:
        if get_origin(hint) in (Union, types.UnionType):
            return self._value(self._rng.choice(get_args(hint)), name)
        if get_origin(hint) is tuple:
            items = get_args(hint)
            if items[-1] is Ellipsis:
                items = items[:1] * self._rng.choice((0, 1, 1, 2, 3))
            return tuple(self._value(item, name) for item in items)
        if hint is type(None):
            return None
        if hint is bool:
            return self._rng.random() < 0.5
        if hint is bytes:
            ids = [self._cluster.image.topic_id(topic) for topic in TOPICS]
            return self._rng.choice((bytes(16), uuid(7), uuid(101), *filter(None, ids)))
        if hint is str:
            return self._rng.choice(TEXTS)
        if hint is float:
            return self._rng.choice((-1.0, 0.0, 0.5, 1e300, float("inf"), float("nan")))
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self._rng.choice(list(hint))
        if isinstance(hint, type) and issubclass(hint, Value):
            return self.request(hint)
        assert isinstance(hint, type), f"draw {hint} for {name}"
        assert issubclass(hint, int), f"draw {hint} for {name}"
        return self._integer(name)

    def _integer(self, name: str) -> int:
        if name == "port":
            return self._rng.choice((0, 1, 2**16 - 1))
        if "broker_epoch" in name and self._rng.random() < 0.7:
            return self._rng.choice(list(self._cluster.epochs.values()))
        return self._rng.choice(INTEGERS)


def check(before: Image, after: Image) -> None:
    for topic in after.topic_names():
        topic_id = after.topic_id(topic)
        assert topic_id is not None
        for partition in after.partitions(topic_id):
            place = f"{topic}-{partition.index}: {partition}"
            assert partition.replicas, place
            assert len(set(partition.replicas)) == len(partition.replicas), place
            assert len(set(partition.isr)) == len(partition.isr), place
            assert set(partition.isr) <= set(partition.replicas), place
            assert partition.leader == -1 or partition.leader in partition.isr, place
            known = before.partition(topic_id, partition.index)
            if known is not None:
                assert partition.leader_epoch >= known.leader_epoch, place
                assert partition.partition_epoch >= known.partition_epoch, place
                assert partition.leader == known.leader or partition.leader_epoch > known.leader_epoch, place


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_every_request_is_answered_and_the_cluster_stays_valid(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(WITH_ELR if seed % 2 else None)
    cluster.add_brokers(1, 2, 3)
    for topic in TOPICS:
        cluster.create_assigned(topic, (1, 2, 3), (2, 3, 1))
    hostile = Hostile(cluster, rng)
    for number in range(REQUESTS):
        request = hostile.request(rng.choice(list(OPERATIONS)))
        versions = APIS[OPERATIONS[type(request)].api_key].versions
        before = cluster.image
        replay = f"KLAMM_HOSTILE_SEEDS={seed}, request {number}: {request}"
        try:
            cluster.ask(request, rng.randint(*versions))
            check(before, cluster.image)
        except Exception as error:
            raise AssertionError(f"{replay}: {error!r}") from error
        for broker_id in (1, 2, 3):
            if rng.random() < 0.2:
                cluster.heartbeat(broker_id)
    cluster.fail_over()
