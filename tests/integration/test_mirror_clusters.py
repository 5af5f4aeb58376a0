"""`klamm mirror` between two clusters, beyond copying records: topics, configs, loops, stored offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import klamm
from klamm.admin import configs, topics
from klamm.admin.client import Client
from klamm.client import KafkaClient
from klamm.pipelines.mirror import MirrorError, MirrorOptions, Naming, sync_topic
from klamm.pipelines.mirror import topics as choose
from klamm.pipelines.mirror.clusters import Clusters
from klamm.pipelines.mirror.selection import Selection
from klamm.pipelines.mirror.sync_topic import PartitionSyncs, Place
from klamm.pipelines.mirror.syncs import Sync


@pytest.fixture
def here() -> Iterator[klamm.Cluster]:
    with klamm.Cluster() as running:
        yield running


@pytest.fixture
def there() -> Iterator[klamm.Cluster]:
    with klamm.Cluster() as running:
        yield running


def options(source: klamm.Cluster, target: klamm.Cluster, chosen: Selection, prefix: str = "") -> MirrorOptions:
    return MirrorOptions(source.bootstrap_servers, target.bootstrap_servers, "unused", chosen, naming=Naming(prefix))


def test_topics_are_created_enlarged_and_kept_in_sync(here: klamm.Cluster, there: klamm.Cluster) -> None:
    here.create_topic("a", partitions=2)
    with Clusters(options(here, there, choose(patterns=[".*"]), "eu.")) as clusters:
        configs.alter(clusters.source, "topic", "a", {"retention.ms": "77", "min.insync.replicas": "2"})
        clusters.look_after_topics()
        assert len(clusters.copies["a"].partitions) == 2
        assert set_on(clusters.target, "eu.a") == {"retention.ms": "77"}

        topics.add_partitions(clusters.source, "a", 5)
        configs.alter(clusters.source, "topic", "a", {"retention.ms": None, "cleanup.policy": "compact"})
        configs.alter(clusters.target, "topic", "eu.a", {"min.insync.replicas": "1"})
        clusters.look_after_topics()
        clusters.look_after_configs()
        assert len(clusters.copies["a"].partitions) == 5
        assert set_on(clusters.target, "eu.a") == {"cleanup.policy": "compact", "min.insync.replicas": "1"}


def set_on(client: Client, topic: str) -> dict[str, str | None]:
    return {
        entry.name: entry.value
        for entry in configs.describe(client, "topic", topic)
        if entry.source == "set on the topic"
    }


def test_one_cluster_is_not_mirrored_to_itself(here: klamm.Cluster) -> None:
    with pytest.raises(MirrorError, match=f"are one cluster, {here.cluster_id}: it would copy its own copies for ever"):
        Clusters(options(here, here, choose(names=["a"])))


def test_two_opposite_mirrors_skip_each_others_copies(here: klamm.Cluster, there: klamm.Cluster) -> None:
    here.create_topic("a")
    with (
        Clusters(options(here, there, choose(patterns=[".*"]), "here.")) as onwards,
        Clusters(options(there, here, choose(patterns=[".*"]), "there.")) as back,
    ):
        for _ in range(3):
            onwards.look_after_topics()
            back.look_after_topics()
            there_topics = set(there.topics())
            if "b" not in there_topics:
                there.create_topic("b")
        assert onwards.left_out == {"there.b"}
        assert back.left_out == {"here.a"}
    assert set(here.topics()) == {"a", "there.b", sync_topic.name_of(there.cluster_id)}
    assert set(there.topics()) == {"b", "here.a", sync_topic.name_of(here.cluster_id)}

    named = options(there, here, choose(names=["here.a"]))
    message = (
        f"here.a of the source .* is itself a mirror .* delete the source's topic {sync_topic.name_of(here.cluster_id)}"
    )
    with Clusters(named) as looped, pytest.raises(MirrorError, match=message):
        looped.look_after_topics()


def test_a_named_topic_must_exist(here: klamm.Cluster, there: klamm.Cluster) -> None:
    with (
        Clusters(options(here, there, choose(names=["a", "b"]))) as clusters,
        pytest.raises(MirrorError, match=f"the source {here.bootstrap_servers} has no topic a, b"),
    ):
        clusters.look_after_topics()


def test_an_unreachable_cluster_is_named(here: klamm.Cluster) -> None:
    gone = MirrorOptions("127.0.0.1:1", here.bootstrap_servers, "unused", choose(names=["a"]))
    with pytest.raises(MirrorError, match=r"the source, 127\.0\.0\.1:1: cannot connect to 127\.0\.0\.1:1"):
        Clusters(gone)


def test_stored_offset_syncs_are_read_again(here: klamm.Cluster) -> None:
    here.create_topic("syncs")
    known = {Place("a", number, "eu.a"): PartitionSyncs("id", (Sync(1, 2, number), Sync(5, 9))) for number in range(3)}
    with KafkaClient(here.bootstrap_servers) as client:
        sync_topic.save(client, "syncs", known)
        newer = {Place("a", 1, "eu.a"): PartitionSyncs(None, ())}
        sync_topic.save(client, "syncs", newer)
        client.produce("syncs", 0, None, _binary(b"somebody else's"))
        client.flush()
        assert sync_topic.load(client, "syncs") == known | newer


def _binary(value: bytes) -> object:
    import pyarrow as pa

    return pa.array([value], pa.binary())
