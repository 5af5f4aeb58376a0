"""Every version of every API that klamm serves, sent to Apache Kafka 4.3.1 and to klamm: the same responses.

Requests are encoded with kio's schemas, field by field; fields that a version does not have are dropped. Responses are
decoded in the same way and compared except for addresses, ids, times and sizes. For messages, only their presence is
compared, because klamm has its own wording.
"""

from __future__ import annotations

from pathlib import Path

from tests.interop.apache_kafka import KafkaNode
from tests.interop.every_version import cluster, configs, groups, quotas, records, repeats, topics
from tests.interop.peers import Both, Peer
from tests.support.foreign import require
from tests.support.node_process import NodeProcess


def test_every_version_is_answered_as_by_apache_kafka(tmp_path: Path) -> None:
    require("java", "mvn")
    overrides = {"offsets.topic.num.partitions": "1", "auto.create.topics.enable": "false"}
    kafka = KafkaNode(tmp_path / "kafka", overrides=overrides)
    kafka.format("4L6g3nShT-eMCtK--X86sw")
    with kafka, NodeProcess(tmp_path / "klamm", overrides=overrides) as klamm:
        both = Both(Peer(kafka.port), Peer(klamm.port))
        for part in (
            cluster.listed_versions,
            topics.topics,
            topics.reassignments,
            topics.metadata,
            cluster.cluster,
            configs.configs,
            cluster.security,
            records.produces,
            records.offsets,
            records.fetches,
            repeats.repeats,
            groups.groups,
            topics.deletions,
        ):
            part(both)
        on_controllers = Both(Peer(cluster.controller_port(both.kafka)), Peer(cluster.controller_port(both.klamm)))
        cluster.controllers(on_controllers)
        # These come last, because Apache Kafka enforces them.
        quotas.quotas(both)
        quotas.alterations(on_controllers, "at a controller")
        both.differences |= on_controllers.differences
    listing = "\n".join(f"{what} (versions {which})" for what, which in both.differences.items())
    assert not listing, f"{len(both.differences)} differences in {both.count} requests:\n{listing}"
