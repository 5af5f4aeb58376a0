"""Every record as text and as fields: each type and version, as Apache Kafka writes them, also with unusual values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from klamm._engine.metadata import Image
from klamm.metadata import Entry, RecordDescriber
from klamm.metadata.log.entries import type_names
from klamm.metadata.rendering.fields import HIDDEN, fields_of
from klamm.protocol.generated import metadata_records as mr
from klamm.protocol.generated.metadata_records import MetadataRecord, encode_at
from klamm.raft.log import control_records as control
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VoterSet

RECORDS = Path(__file__).parents[3] / "golden/metadata/records.jsonl"
GOLDEN = [bytes.fromhex(json.loads(line)["hex"]) for line in RECORDS.read_text().splitlines()]
TOPIC = b"t" * 16
VOTERS = VoterSet.of([Voter(ReplicaKey(1, b"d" * 16), (Endpoint("C", "host", 9093),))])


def entry(record: MetadataRecord) -> Entry:
    return Entry(0, 0, 1, 0, None, encode_at(record, 30))


def test_every_record_of_apache_kafka_has_text_and_fields() -> None:
    seen = set()
    for value in GOLDEN:
        found = Entry(7, 7, 1, 0, None, value)
        seen.add(found.type_name)
        assert RecordDescriber().describe(found).strip()
        fields = fields_of(found)
        assert "error" not in fields
        json.dumps(fields)
        record = found.record()
        if isinstance(record, mr.UserScramCredentialRecord):
            assert {fields["salt"], fields["stored_key"], fields["server_key"]} == {HIDDEN}
    assert seen | {"LeaderChange", "SnapshotHeader", "SnapshotFooter", "KRaftVersion", "KRaftVoters"} == set(
        type_names()
    )


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (
            control.LEADER_CHANGE,
            control.encode_leader_change(3, (1, 3), (3,)),
            "controller 3 leads epoch 5, voters [1,3]",
        ),
        (control.KRAFT_VERSION, control.encode_kraft_version(1), "kraft.version is 1"),
        (control.KRAFT_VOTERS, control.encode_voters(VOTERS), "the voters are 1@host:9093"),
        (control.SNAPSHOT_HEADER, b"", "a snapshot begins"),
        (control.SNAPSHOT_FOOTER, b"", "the snapshot ends"),
        (77, b"", "a control record of type 77, which klamm does not know"),
    ],
)
def test_control_records(kind: int, value: bytes, text: str) -> None:
    found = Entry(0, 0, 5, 0, kind, value)
    assert RecordDescriber().describe(found) == text
    assert "error" not in fields_of(found)


def test_names_replace_ids_and_changes_show_previous_values() -> None:
    describer = RecordDescriber(Image())
    described = [
        describer.describe(entry(record))
        for record in (
            mr.FeatureLevelRecord(name="metadata.version", feature_level=30),
            mr.TopicRecord(name="orders", topic_id=TOPIC),
            mr.PartitionRecord(
                partition_id=0,
                topic_id=TOPIC,
                replicas=[1, 2],
                isr=[1, 2],
                removing_replicas=[],
                adding_replicas=[],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[b"d" * 16] * 2,
            ),
            mr.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=2, isr=[2]),
            mr.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=2),
            mr.ConfigRecord(resource_type=4, resource_name="", name="ssl.key.password", value="secret"),
            mr.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value=None),
            mr.RemoveTopicRecord(topic_id=TOPIC),
            mr.PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=-1),
        )
    ]
    assert described[1].startswith("topic orders created")
    assert described[2:] == [
        "partition orders-0: leader 1, replicas [1,2]",
        "partition orders-0: leader 1 -> 2, ISR [1,2] -> [2]",
        "partition orders-0: leader 2 again",
        "all brokers: ssl.key.password=(hidden)",
        "topic orders: retention.ms reset",
        "topic orders deleted",
        "partition orders-0: leader none",
    ]


def test_without_an_image_ids_are_shown() -> None:
    change = mr.PartitionChangeRecord(topic_id=TOPIC, partition_id=3, leader=-1, isr=[])
    assert RecordDescriber().describe(entry(change)) == "partition topic dHR0dHR0dHR0dHR0dHR0dA-3: leader none, ISR []"
