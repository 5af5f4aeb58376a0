"""A kraft.version that klamm took up is Apache Kafka's too, and still klamm's afterwards."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient

import klamm
from klamm.protocol.errors import ErrorCode
from tests.integration.test_kraft_version import UPGRADE, finalized, update
from tests.interop.apache_kafka import KafkaNode
from tests.support.foreign import require


def test_apache_kafka_takes_over_an_upgraded_directory(tmp_path: Path) -> None:
    require("java", "mvn")
    data = tmp_path / "data"
    with klamm.Cluster(data) as cluster:
        cluster.create_topic("before")
        assert update(cluster.bootstrap_servers, 1, UPGRADE) is ErrorCode.NONE
        cluster.create_topic("after")
    node = KafkaNode(data)
    try:
        node.start()
        assert finalized(node.bootstrap) == 1
        topics = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=30).topics
        assert {"before", "after"} <= topics.keys()
    finally:
        node.stop()
    with klamm.Cluster(data) as cluster:
        assert finalized(cluster.bootstrap_servers) == 1
        assert cluster.topics() == ["after", "before"]
