"""The quota on partitions that a client creates and deletes (KIP-599)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.cluster import Cluster

from klamm.controller.mutation_quotas import MutationQuotas
from klamm.controller.requester import Requester
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.client_quotas import (
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    QuotaChange,
    QuotaEntityPart,
)
from klamm.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
ALICE = Requester("alice", "c")


@pytest.fixture
def cluster() -> Cluster:
    """Alice may change one partition per second, and save up eleven."""
    cluster = Cluster()
    cluster.add_brokers(1)
    limit(cluster, {"user": "alice"}, 1.0)
    cluster.requester = ALICE
    return cluster


def limit(cluster: Cluster, entity: dict[str, str | None], per_second: float) -> None:
    parts = tuple(QuotaEntityPart(*part) for part in entity.items())
    change = QuotaChange("controller_mutation_rate", per_second)
    cluster.ask(AlterClientQuotasRequest((AlterClientQuotasEntry(parts, (change,)),)))


def create(cluster: Cluster, *topics: tuple[str, int], version: int = 7) -> tuple[int, list[ErrorCode]]:
    """The throttle time and the code of each topic."""
    request = CreateTopicsRequest(tuple(CreatableTopic(name, count, 1) for name, count in topics))
    answer: Any = cluster.ask(request, version)
    return answer.throttle_time_ms, [topic.error_code for topic in answer.topics]


def test_a_strict_quota_rejects_topics_after_the_last_token(cluster: Cluster) -> None:
    assert create(cluster, ("a", 10), ("b", 5), ("c", 1)) == (4_000, [ErrorCode.NONE, ErrorCode.NONE, EXCEEDED])
    assert cluster.image.topic_id("c") is None
    cluster.now_ms += 3_999
    assert create(cluster, ("c", 1)) == (1, [EXCEEDED])
    cluster.now_ms += 1
    assert create(cluster, ("c", 1)) == (0, [ErrorCode.NONE])


def test_older_versions_are_throttled_only(cluster: Cluster) -> None:
    assert create(cluster, ("a", 10), ("b", 5), version=5) == (4_000, [ErrorCode.NONE, ErrorCode.NONE])
    assert create(cluster, ("c", 1), version=5) == (5_000, [ErrorCode.NONE])


def test_added_and_deleted_partitions_count_as_well(cluster: Cluster) -> None:
    create(cluster, ("a", 2), ("b", 2))
    added = cluster.ask(CreatePartitionsRequest((CreatePartitionsTopic("a", 11),)))
    assert (added.throttle_time_ms, added.results[0].error_code) == (0, ErrorCode.NONE)
    added = cluster.ask(CreatePartitionsRequest((CreatePartitionsTopic("b", 3),)))
    assert (added.throttle_time_ms, added.results[0].error_code) == (2_000, EXCEEDED)
    cluster.now_ms += 2_000
    deleted = cluster.ask(DeleteTopicsRequest((DeleteTopicState("a"), DeleteTopicState("b"))), 6)
    assert {each.name: each.error_code for each in deleted.responses} == {"a": ErrorCode.NONE, "b": EXCEEDED}
    assert deleted.throttle_time_ms == 11_000
    assert cluster.image.topic_id("b") is not None


def test_others_are_not_limited(cluster: Cluster) -> None:
    create(cluster, ("a", 100))
    for requester in (Requester("bob", "c"), None):
        cluster.requester = requester
        assert create(cluster, (f"of {requester and requester.user}".replace(" ", "-"), 100)) == (0, [ErrorCode.NONE])


def test_the_most_specific_limit_applies(cluster: Cluster) -> None:
    limit(cluster, {"user": None}, 2.0)
    limit(cluster, {"client-id": "c"}, 5.0)
    quotas = MutationQuotas(10)
    for requester, throttle_ms in ((ALICE, 10_000), (Requester("bob", "c"), 0), (Requester("eve", ""), 0)):
        quota = quotas.of(cluster.image, requester, 0, is_strict=False)
        assert quota is not None
        quota.charge(20)
        assert quota.throttle_time_ms == throttle_ms
    # The clients of a user share its bucket.
    quota = quotas.of(cluster.image, Requester("bob", "another"), 0, is_strict=False)
    assert quota is not None
    quota.charge(1)
    assert quota.throttle_time_ms == 500
    assert MutationQuotas(10).of(Cluster().image, ALICE, 0, is_strict=True) is None


def test_a_changed_quota_applies_to_the_same_bucket(cluster: Cluster) -> None:
    create(cluster, ("a", 21))
    cluster.requester = None
    limit(cluster, {"user": "alice"}, 10.0)
    cluster.requester = ALICE
    assert create(cluster, ("b", 1)) == (1_000, [EXCEEDED])
