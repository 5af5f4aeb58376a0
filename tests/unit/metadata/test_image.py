"""The image through its Python API; Rust tests cover how records are applied."""

from __future__ import annotations

import pytest

from klamm._engine.controller import Elections, PlacementError, Placer, partition_records, topic_records
from klamm._engine.metadata import Image, MetadataReplayError
from klamm.protocol.generated import metadata_records as records

LEVEL = 30
TOPIC_ID = bytes(range(16))


def directory(broker_id: int) -> bytes:
    return bytes([broker_id + 100]) * 16


def broker(broker_id: int, *, fenced: bool = False, rack: str | None = None) -> records.RegisterBrokerRecord:
    return records.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=bytes([broker_id]) * 16,
        broker_epoch=10 + broker_id,
        end_points=[records.BrokerEndpoint(name="PLAINTEXT", host=f"host-{broker_id}", port=9092, security_protocol=0)],
        features=[records.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        rack=rack,
        fenced=fenced,
        log_dirs=[directory(broker_id)],
    )


def applied(image: Image, *new: records.MetadataRecord) -> Image:
    return image.apply([records.encode_at(record, LEVEL) for record in new])


@pytest.fixture
def cluster() -> Image:
    level = records.FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)
    return applied(Image(), level, *(broker(broker_id) for broker_id in (1, 2, 3)))


@pytest.fixture
def with_topic(cluster: Image) -> Image:
    return cluster.apply(
        topic_records(cluster, "orders", TOPIC_ID, [("min.insync.replicas", "2")], [[1, 2, 3], [2, 3, 1]])
    )


def elections(image: Image, *, unclean: bool = False) -> Elections:
    return Elections(image, node_id=1, min_insync_replicas=1, unclean_leader_election_enable=unclean)


def test_an_empty_image() -> None:
    image = Image()
    assert (image.topic_count, image.partition_count, image.last_offset) == (0, 0, -1)
    assert image.topic_id("t") is None
    assert image.topic_name(TOPIC_ID) is None
    assert image.partition(TOPIC_ID, 0) is None
    assert image.partitions(TOPIC_ID) == []
    assert image.broker(1) is None
    assert image.metadata_version is None
    assert image.next_producer_id is None
    assert image.configs(2, "t") == {}
    assert image == Image()


def test_a_topic_is_found_by_name_and_id(with_topic: Image) -> None:
    assert with_topic.topic_id("orders") == TOPIC_ID
    assert with_topic.topic_name(TOPIC_ID) == "orders"
    assert with_topic.topic_names() == ["orders"]
    assert with_topic.topic_partition_count(TOPIC_ID) == 2
    assert with_topic.configs(2, "orders") == {"min.insync.replicas": "2"}
    assert with_topic.config_resources(2) == ["orders"]
    second = with_topic.partition(TOPIC_ID, 1)
    assert second is not None
    assert (second.index, second.replicas, second.isr, second.leader) == (1, [2, 3, 1], [2, 3, 1], 2)
    assert (second.leader_epoch, second.partition_epoch, second.leader_recovery_state) == (0, 0, 0)
    assert second.directories == [directory(2), directory(3), directory(1)]
    assert [partition.index for partition in with_topic.partitions(TOPIC_ID)] == [0, 1]


def test_brokers_and_their_partitions(with_topic: Image) -> None:
    assert with_topic.broker_ids() == [1, 2, 3]
    first = with_topic.broker(1)
    assert first is not None
    assert (first.id, first.epoch, first.fenced, first.is_active, first.rack) == (1, 11, False, True, None)
    assert [(e.name, e.host, e.port, e.security_protocol) for e in first.endpoints] == [
        ("PLAINTEXT", "host-1", 9092, 0)
    ]
    assert [(f.name, f.level_min, f.level_max) for f in first.features] == [("metadata.version", 7, 30)]
    assert first.default_dir == directory(1)
    assert first.has_online_dir(directory(1))
    assert not first.has_online_dir(directory(2))
    counts = with_topic.broker_partition_counts(1)
    assert (counts.leaders, counts.in_sync, counts.eligible, counts.replicas) == (1, 2, 0, 2)


def test_an_invalid_record_leaves_the_image_unchanged(with_topic: Image) -> None:
    wrong = records.RemoveTopicRecord(topic_id=bytes(16))
    good = records.ProducerIdsRecord(broker_id=1, next_producer_id=1000)
    with pytest.raises(MetadataReplayError, match=r"record 1 of the batch .* topic id AAAAAAAAAAAAAAAAAAAAAA"):
        applied(with_topic, good, wrong)
    assert with_topic.next_producer_id is None
    assert applied(with_topic, good).next_producer_id == 1000


def test_provenance_is_set_by_the_caller(cluster: Image) -> None:
    image = cluster.with_provenance(41, 3, 1_700_000_000_000)
    assert (image.last_offset, image.last_epoch, image.last_timestamp_ms) == (41, 3, 1_700_000_000_000)
    assert applied(image, records.NoOpRecord()).last_offset == 41
    assert image == cluster, "content is compared, not its place in the log"


def test_a_transaction_is_not_stable_before_it_ends(cluster: Image) -> None:
    begin = records.BeginTransactionRecord(name="x")
    opened = applied(cluster, begin, records.TopicRecord(name="t", topic_id=TOPIC_ID))
    assert opened.in_transaction
    assert opened.topic_count == 1
    assert opened.stable == cluster
    assert applied(opened, records.EndTransactionRecord()).stable.topic_count == 1
    assert applied(opened, records.AbortTransactionRecord()) == cluster


def test_security_and_quotas(cluster: Image) -> None:
    image = applied(
        cluster,
        records.AccessControlEntryRecord(
            id=TOPIC_ID, resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*", operation=3,
            permission_type=3,
        ),
        records.UserScramCredentialRecord(
            name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        records.DelegationTokenRecord(
            owner="User:a", requester="User:b", renewers=["User:c"], issue_timestamp=1, max_timestamp=3,
            expiration_timestamp=2, token_id="id",
        ),
        records.ClientQuotaRecord(
            entity=[records.EntityData(entity_type="user", entity_name=None)], key="producer_byte_rate", value=5.0,
            remove=False,
        ),
    )  # fmt: skip
    acl = image.acl(TOPIC_ID)
    assert acl is not None
    assert (acl.principal, acl.resource_name, acl.operation) == ("User:a", "t", 3)
    assert [each.id for each in image.acls()] == [TOPIC_ID]
    credential = image.scram_credential(1, "a")
    assert credential is not None
    assert (credential.salt, credential.iterations) == (b"s", 4096)
    assert image.scram_users() == [(1, "a")]
    token = image.delegation_token("id")
    assert token is not None
    assert (token.renewers, token.expiration_timestamp) == (["User:c"], 2)
    assert image.quota({"user": None}) == {"producer_byte_rate": 5.0}
    assert image.quotas() == [({"user": None}, {"producer_byte_rate": 5.0})]
    delta = image.delta_since(cluster)
    assert delta.changed_acls == [TOPIC_ID]
    assert delta.changed_scram == [(1, "a")]
    assert delta.changed_delegation_tokens == ["id"]
    assert delta.changed_quotas == [{"user": None}]


def test_a_delta_names_topics_partitions_and_brokers(cluster: Image, with_topic: Image) -> None:
    created = with_topic.delta_since(cluster)
    assert created.created_topics == [(TOPIC_ID, "orders")]
    assert created.changed_configs == [(2, "orders")]
    assert created.changed_topics == created.deleted_topics == []
    fenced = with_topic.apply(elections(with_topic).for_broker("fenced", 1))
    assert fenced.delta_since(with_topic).changed_topics == [(TOPIC_ID, "orders", [0, 1])]
    gone = applied(with_topic, records.RemoveTopicRecord(topic_id=TOPIC_ID))
    assert gone.delta_since(with_topic).deleted_topics == [(TOPIC_ID, "orders")]
    renewed = applied(with_topic, broker(2, fenced=True))
    assert renewed.delta_since(with_topic).changed_brokers == [2]
    assert with_topic.delta_since(with_topic).is_empty


def test_fencing_moves_leaders_and_shrinks_isrs(with_topic: Image) -> None:
    after = with_topic.apply(elections(with_topic).for_broker("fenced", 1))
    first, second = after.partitions(TOPIC_ID)
    assert (first.leader, first.isr, first.leader_epoch) == (2, [2, 3], 1)
    assert (second.leader, second.isr, second.leader_epoch) == (2, [2, 3], 0)
    assert after.broker_partition_counts(1).leaders == 0


def test_an_unfenced_broker_takes_leaderless_partitions(with_topic: Image) -> None:
    alone = with_topic
    for gone in (1, 2, 3):
        alone = alone.apply(elections(alone).for_broker("fenced", gone))
        alone = applied(alone, broker(gone, fenced=True))
    assert alone.leaderless_partition_count == 2
    assert elections(alone).unclean_leaders(10) == []
    back = alone.apply(elections(alone).for_broker("unfenced", 3))
    assert [partition.leader for partition in back.partitions(TOPIC_ID)] == [3, 3]
    assert elections(back).for_broker("unfenced", 3) == []


def test_an_administrator_elects(with_topic: Image) -> None:
    after = with_topic.apply(elections(with_topic).for_broker("fenced", 1))
    shrunk = elections(after)
    assert shrunk.elect_leaders("preferred") == [(TOPIC_ID, 0, 80, None)], "PREFERRED_LEADER_NOT_AVAILABLE"
    asked = shrunk.elect_leaders("preferred", [(TOPIC_ID, 1), (TOPIC_ID, 7), (bytes(16), 0)])
    assert [error for _, _, error, _ in asked] == [84, 3, 3], "ELECTION_NOT_NEEDED, UNKNOWN_TOPIC_OR_PARTITION"
    grow = shrunk.change(TOPIC_ID, 0, isr=[2, 3, 1])
    assert grow is not None
    healed = after.apply([grow])
    [(topic_id, index, error, record)] = elections(healed).elect_leaders("preferred")
    assert (topic_id, index, error) == (TOPIC_ID, 0, 0)
    assert record is not None
    assert elections(healed).preferred_leaders(10) == [record]
    assert healed.imbalanced_partition_count == 1
    assert healed.apply([record]).imbalanced_partition_count == 0


def test_a_reassignment_starts_and_completes(cluster: Image) -> None:
    image = cluster.apply(topic_records(cluster, "t", TOPIC_ID, [], [[1, 2]]))
    start = elections(image).change(
        TOPIC_ID, 0, replicas=[3, 2, 1], adding_replicas=[3], removing_replicas=[1], election="online"
    )
    assert start is not None
    image = image.apply([start])
    assert image.reassigning_partitions() == [(TOPIC_ID, 0)]
    joined = elections(image).change(TOPIC_ID, 0, isr=[1, 2, 3])
    assert joined is not None
    done = image.apply([joined]).partition(TOPIC_ID, 0)
    assert done is not None
    assert (done.replicas, done.isr, done.adding_replicas, done.removing_replicas) == ([3, 2], [2, 3], [], [])
    assert (done.leader, done.directories) == (3, [directory(3), directory(2)])


def test_an_offline_directory_costs_its_replicas(with_topic: Image) -> None:
    assert elections(with_topic).for_offline_dirs(1, [directory(2)]) == []
    after = with_topic.apply(elections(with_topic).for_offline_dirs(1, [directory(1)]))
    assert [partition.isr for partition in after.partitions(TOPIC_ID)] == [[2, 3], [2, 3]]


def test_impossible_placements_are_rejected(cluster: Image) -> None:
    assert [len(set(replicas)) for replicas in Placer(cluster, 7).place(4, 3)] == [3] * 4
    with pytest.raises(PlacementError, match="a replication factor of 4 needs as many brokers: 3"):
        Placer(cluster, 7).place(1, 4)
    fenced = applied(cluster, *(broker(broker_id, fenced=True) for broker_id in (1, 2, 3)))
    with pytest.raises(PlacementError, match="all brokers are fenced"):
        Placer(fenced, 7).place(1, 1)
    with pytest.raises(PlacementError, match="partition 0"):
        topic_records(fenced, "t", TOPIC_ID, [], [[1]])


def test_new_partitions_follow_the_old_ones(with_topic: Image) -> None:
    more = with_topic.apply(partition_records(with_topic, TOPIC_ID, 2, [[3, 1]]))
    third = more.partition(TOPIC_ID, 2)
    assert third is not None
    assert (third.replicas, third.leader, third.directories) == ([3, 1], 3, [directory(3), directory(1)])


def test_invalid_ids_are_rejected(cluster: Image) -> None:
    with pytest.raises(ValueError, match="an id is 16 bytes, not 3"):
        cluster.topic_name(b"abc")
