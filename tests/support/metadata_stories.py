"""Metadata logs written by hand, so that the expected results are known by reasoning."""

from __future__ import annotations

from pathlib import Path

from klamm._engine.quorum import MetadataLog
from klamm.protocol.generated import metadata_records as mr
from klamm.protocol.generated.metadata_records import MetadataRecord, encode_at
from klamm.raft.log.control_records import LEADER_CHANGE, encode_leader_change

FOLDER = "__cluster_metadata-0"
LEVEL = 30
ORDERS, OTHER = bytes(15) + b"\x01", bytes(15) + b"\x02"
INCARNATION = bytes(15) + b"\x09"
TOPIC, BROKER = 2, 4


class WrittenLog:
    """A log in a directory; each call writes a batch, with a time in ms."""

    def __init__(self, directory: Path, *, segment_bytes: int = 8 << 20, is_volatile: bool = False) -> None:
        self.directory = directory
        self.folder = directory / FOLDER
        self.native = MetadataLog(
            self.folder, segment_bytes=segment_bytes, segment_ms=1 << 40, now_ms=0, is_volatile=is_volatile
        )
        self.epoch = 0

    def lead(self, time_ms: int, epoch: int, leader: int) -> int:
        """Write the first record of a leader; returns its offset."""
        self.epoch = epoch
        value = encode_leader_change(leader, (1, 2, 3), (leader, 3))
        return self.native.append_control([(LEADER_CHANGE, value)], epoch, time_ms)

    def put(self, time_ms: int, *records: MetadataRecord) -> int:
        """Write records; returns the offset of the last one."""
        return self.native.append([encode_at(record, LEVEL) for record in records], self.epoch, time_ms)

    def close(self) -> None:
        """Close the files."""
        self.native.close()


def register(broker: int, epoch: int) -> mr.RegisterBrokerRecord:
    """A registration; a new broker is fenced."""
    return mr.RegisterBrokerRecord(
        broker_id=broker, incarnation_id=INCARNATION, broker_epoch=epoch, end_points=(), features=(), rack=None
    )


def registration(broker: int, *, broker_epoch: int | None = None, **changes: int) -> mr.BrokerRegistrationChangeRecord:
    """A change of a registration; the broker epoch is the id unless it is given."""
    epoch = broker if broker_epoch is None else broker_epoch
    return mr.BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=epoch, **changes)


def partition(
    topic_id: bytes, number: int, replicas: list[int], isr: list[int], leader: int, **more: object
) -> mr.PartitionRecord:
    """A partition with leader epoch 0."""
    given = {"removing_replicas": [], "adding_replicas": [], "leader_epoch": 0, "partition_epoch": 0} | more
    return mr.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=leader,
        directories=[bytes(16)] * len(replicas),
        **given,  # type: ignore[arg-type]
    )


def change(topic_id: bytes, number: int, **changed: object) -> mr.PartitionChangeRecord:
    """A change of a partition."""
    return mr.PartitionChangeRecord(topic_id=topic_id, partition_id=number, **changed)  # type: ignore[arg-type]


def config(name: str, value: str | None, *, of: str = "orders", kind: int = TOPIC) -> mr.ConfigRecord:
    """A config of a topic or of brokers."""
    return mr.ConfigRecord(resource_type=kind, resource_name=of, name=name, value=value)


def write_story(directory: Path, *, segment_bytes: int = 8 << 20) -> None:
    """Three brokers, a topic of two partitions, a fault, an unclean election, two leaders of the quorum.

    The comments are the offsets; the expected results are in `tests/spark/test_audit.py`.
    """
    log = WrittenLog(directory, segment_bytes=segment_bytes)
    log.lead(1000, 1, 1)  # 0
    log.put(2000, register(1, 1), register(2, 2), register(3, 3))  # 1 to 3
    log.put(3000, *(registration(one, fenced=-1) for one in (1, 2, 3)))  # 4 to 6
    first = partition(ORDERS, 0, [1, 2, 3], [1, 2, 3], 1)
    second = partition(ORDERS, 1, [2, 3, 1], [2, 3, 1], 2)
    log.put(4000, mr.TopicRecord(name="orders", topic_id=ORDERS), first, second)  # 7 to 9
    log.put(5000, config("retention.ms", "100"))  # 10
    log.put(6000, change(ORDERS, 0, isr=[1, 2]))  # 11
    log.put(7000, change(ORDERS, 0, isr=[1]))  # 12
    log.put(9000, change(ORDERS, 0, isr=[1, 2, 3]))  # 13
    log.put(10_000, change(ORDERS, 1, isr=[3, 1], leader=3))  # 14
    log.put(11_000, change(ORDERS, 1, isr=[3], leader=-1), registration(3, fenced=1))  # 15, 16
    log.lead(14_000, 3, 2)  # 17
    log.put(15_000, change(ORDERS, 1, isr=[2], leader=2, leader_recovery_state=1))  # 18
    log.put(16_000, change(ORDERS, 1, leader_recovery_state=0))  # 19
    secret = {"of": "", "kind": BROKER}
    log.put(
        17_000,
        config("retention.ms", "200"),  # 20
        config("ssl.keystore.password", "sesame", **secret),  # type: ignore[arg-type]  # 21
        config("ssl.keystore.password", "open", **secret),  # type: ignore[arg-type]  # 22
        config("retention.ms", "200"),  # 23
        config("cleanup.policy", "compact"),  # 24
        config("cleanup.policy", None),  # 25
    )
    # A controller that takes over aborts its predecessor's transaction: none of its records count.
    log.put(18_000, mr.BeginTransactionRecord(name="never"), change(ORDERS, 0, isr=[1], leader=2))  # 26, 27
    log.put(18_500, mr.AbortTransactionRecord(reason="failover"))  # 28
    log.put(20_000, mr.RemoveTopicRecord(topic_id=ORDERS))  # 29
    log.put(21_000, registration(1, in_controlled_shutdown=1))  # 30
    log.put(22_000, mr.UnregisterBrokerRecord(broker_id=3, broker_epoch=3))  # 31
    # Replicas that a reassignment is adding do not count; the record that completes it may make one of them the leader.
    moved = partition(OTHER, 0, [1, 2, 3], [1, 2], 1, adding_replicas=[3], removing_replicas=[1])
    log.put(23_000, mr.TopicRecord(name="<other>", topic_id=OTHER), moved)  # 32, 33
    done = {"replicas": [2, 3], "isr": [2, 3], "leader": 3, "adding_replicas": [], "removing_replicas": []}
    log.put(24_000, change(OTHER, 0, **done))  # 34
    # A leader elected from the ELR is a clean election.
    log.put(25_000, change(OTHER, 0, isr=[], leader=-1, eligible_leader_replicas=[2, 3]))  # 35
    log.put(26_000, change(OTHER, 0, isr=[2], leader=2, eligible_leader_replicas=[3]))  # 36
    log.put(27_000, mr.ClearElrRecord(topic_name=""))  # 37
    log.put(30_000, mr.NoOpRecord())  # 38
    log.close()
