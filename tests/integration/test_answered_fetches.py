"""The engine answers nearly all fetches to a leading controller, and the core still knows every replica's position."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import klamm
from klamm.embedded.cluster import Cluster
from klamm.embedded.parts import Controller
from klamm.protocol.api_key import ApiKey
from klamm.raft import effects as fx
from klamm.raft.description import QuorumDescription
from klamm.raft.driver.serving import RaftRequests
from klamm.raft.node import RaftNode
from klamm.raft.replication.requests import LeasedFetch
from tests.support.waiting import wait_until

BROKER = 1


class Counts:
    """Counts fetches by the node that received them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.leased = Counter[int](), Counter[int]()
        handle, on_answered = RaftRequests.handle, RaftNode.on_leased_fetches

        def counted(self_: RaftRequests, api_key: int, *rest: Any) -> None:
            self.asked[self_._driver._node.replica.id] += api_key == ApiKey.FETCH
            handle(self_, api_key, *rest)

        def leased(self_: RaftNode, now_ms: int, epoch: int, fetches: Sequence[LeasedFetch]) -> list[fx.Effect]:
            self.leased[self_.replica.id] += len(fetches)
            return on_answered(self_, now_ms, epoch, fetches)

        monkeypatch.setattr(RaftRequests, "handle", counted)
        monkeypatch.setattr(RaftNode, "on_leased_fetches", leased)


def active(cluster: Cluster) -> Controller:
    wait_until(lambda: any(one.is_active for one in cluster.controllers))
    return next(one for one in cluster.controllers if one.is_active)


def described(cluster: Cluster, controller: Controller) -> QuorumDescription:
    async def describe() -> QuorumDescription:
        return controller._member.node.metadata.raft.describe_quorum()

    return cluster.run(describe())


def is_caught_up(cluster: Cluster, controller: Controller, voters: set[int]) -> bool:
    """Whether all running replicas have fetched to the end of the log within the last second."""
    quorum = described(cluster, controller)
    running = [one for one in (*quorum.voters, *quorum.observers) if one.key.id in {*voters, BROKER}]
    since_ms = time.time() * 1000 - 1000
    ends = [one.log_end_offset for one in running if one.last_caught_up_timestamp_ms >= since_ms]
    return ends == [quorum.high_watermark] * (len(voters) + 1)


def create(cluster: Cluster, counts: Counts, names: list[str], leader: Controller, voters: set[int]) -> None:
    """Create topics; the leader's core sees hardly any fetch, because it has granted every replica a lease."""
    wait_until(lambda: is_caught_up(cluster, leader, voters))
    asked, leased = counts.asked[leader.id], counts.leased[leader.id]
    for name in names:
        cluster.create_topic(name)
    wait_until(lambda: is_caught_up(cluster, leader, voters))
    # Each change is fetched at least once by a voter, to be committed, and by the broker, to be applied.
    assert counts.leased[leader.id] - leased >= 2 * len(names)
    # If the process stalls for as long as replicas wait, the core is asked again.
    assert counts.asked[leader.id] - asked <= len(names) // 5
    assert set(names) <= set(cluster.topics())


def test_a_leaders_core_sees_few_fetches_and_knows_all_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts(monkeypatch)
    with klamm.Cluster(controllers=3, brokers=1) as cluster:
        everybody = {one.id for one in cluster.controllers}
        first = active(cluster)
        create(cluster, counts, [f"a-{number}" for number in range(20)], first, everybody)
        first.stop()
        second = active(cluster)
        assert second.id != first.id
        create(cluster, counts, [f"b-{number}" for number in range(20)], second, everybody - {first.id})
        first.start()
        create(cluster, counts, [f"c-{number}" for number in range(20)], second, everybody)
        second.kill()
        third = active(cluster)
        assert third.id != second.id
        create(cluster, counts, [f"d-{number}" for number in range(20)], third, everybody - {second.id})
        assert {one.key.id for one in described(cluster, third).voters} == everybody
