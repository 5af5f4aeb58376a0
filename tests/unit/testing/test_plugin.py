from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klamm.admin.client import Client
from klamm.cli.records.produce import Producer

if TYPE_CHECKING:
    from klamm import Cluster


def test_the_fixture_provides_a_node(klamm_cluster: Cluster) -> None:
    klamm_cluster.create_topic("greetings")
    with Client(klamm_cluster.bootstrap_servers) as client:
        producer = Producer(client, "greetings", "none", None)
        producer.add((-1, None, b"hello", []))
        producer.flush()
    assert [record.value for record in klamm_cluster.records("greetings")] == [b"hello"]


def test_each_test_gets_a_new_node(klamm_cluster: Cluster) -> None:
    assert klamm_cluster.topics() == []


@pytest.mark.klamm_cluster(brokers=2, config={"num.partitions": "5"})
class TestSized:
    def test_a_marker_sets_the_size(self, klamm_cluster: Cluster) -> None:
        assert [broker.id for broker in klamm_cluster.brokers] == [1, 2]
        assert klamm_cluster.controllers == ()

    @pytest.mark.klamm_cluster(controllers=1)
    def test_the_closest_marker_wins_for_each_argument(self, klamm_cluster: Cluster) -> None:
        assert (len(klamm_cluster.brokers), len(klamm_cluster.controllers)) == (2, 1)


def test_arguments_without_a_name_are_refused(request: pytest.FixtureRequest) -> None:
    request.node.add_marker(pytest.mark.klamm_cluster(3))
    with pytest.raises(pytest.UsageError, match="by name"):
        request.getfixturevalue("klamm_cluster")
