from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.admin.client import Client
from klamm.cli.records.produce import Producer

if TYPE_CHECKING:
    from klamm import Cluster


def test_a_test_that_asks_gets_a_node(klamm_cluster: Cluster) -> None:
    klamm_cluster.create_topic("greetings")
    with Client(klamm_cluster.bootstrap_servers) as client:
        producer = Producer(client, "greetings", "none", None)
        producer.add((-1, None, b"hello", []))
        producer.flush()
    assert [record.value for record in klamm_cluster.records("greetings")] == [b"hello"]


def test_each_test_gets_a_node_of_its_own(klamm_cluster: Cluster) -> None:
    assert klamm_cluster.topics() == []
