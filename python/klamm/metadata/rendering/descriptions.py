"""Metadata records in plain words, with names in place of ids, and with previous values for fields that are not set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm._engine.metadata import Image, MetadataRecordError, MetadataReplayError
from klamm.metadata.log.entries import Entry
from klamm.metadata.rendering.fields import config_value
from klamm.protocol.generated import metadata_records as mr
from klamm.protocol.generated.metadata_records import MetadataRecord
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.uuids import uuid_text
from klamm.raft.log import control_records
from klamm.raft.log.control_records import decode_kraft_version, decode_leader_change, decode_voters
from klamm.raft.voters.voter_set import Voter

_NO_CHANGE: Final = -2
_RESOURCES: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.CLIENT_METRICS: "client metrics",
    ResourceType.GROUP: "group",
}
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class RecordDescriber:
    """Describes records in order. Knows the state before each record as far as the initial image contains it."""

    def __init__(self, before: Image | None = None) -> None:
        """`before` is the cluster before the first record; without it, ids stand where names are not known."""
        self.image = before
        """As of the last record described; None when it cannot be known."""
        self._names: dict[bytes, str] = {}

    def describe(self, entry: Entry) -> str:
        """A description of the record. `MetadataRecordError` or `ControlRecordError`: it is damaged, or too new."""
        if entry.control is not None:
            return _of_control(entry)
        record = entry.record()
        if isinstance(record, mr.TopicRecord):
            self._names[record.topic_id] = record.name
        text = self._of_record(record)
        self.advance(entry)
        return text

    def advance(self, entry: Entry) -> None:
        """Pass over a record."""
        if self.image is None or entry.control is not None:
            return
        try:
            self.image = self.image.apply([entry.value])
        except (MetadataReplayError, MetadataRecordError):
            self.image = None

    def topic_name(self, topic_id: bytes) -> str:
        """The name, also of a topic that was deleted meanwhile; its id when the name is not known."""
        known = None if self.image is None else self.image.topic_name(topic_id)
        if known is not None:
            self._names[topic_id] = known
        return self._names.get(topic_id, f"topic {uuid_text(topic_id)}")

    def _of_record(self, record: MetadataRecord) -> str:
        match record:
            case mr.TopicRecord():
                return f"topic {record.name} created (id {uuid_text(record.topic_id)})"
            case mr.RemoveTopicRecord():
                return f"topic {self.topic_name(record.topic_id)} deleted"
            case mr.PartitionRecord():
                return self._of_partition(record)
            case mr.PartitionChangeRecord():
                return self._of_change(record)
            case mr.ConfigRecord():
                return _of_config(record)
            case mr.RegisterBrokerRecord() | mr.RegisterControllerRecord():
                return _of_registration(record)
            case mr.BrokerRegistrationChangeRecord():
                return _of_registration_change(record)
            case mr.ClientQuotaRecord():
                return _of_quota(record)
            case mr.AccessControlEntryRecord() | mr.RemoveAccessControlEntryRecord():
                return _of_acl(record)
            case _:
                return _of_small(record)

    def _of_partition(self, record: mr.PartitionRecord) -> str:
        parts = [f"leader {leader_text(record.leader)}", f"replicas {ids_text(record.replicas)}"]
        if list(record.isr) != list(record.replicas):
            parts.append(f"ISR {ids_text(record.isr)}")
        for label, ids in (("ELR", record.eligible_leader_replicas), ("last known ELR", record.last_known_elr)):
            parts += [f"{label} {ids_text(ids)}"] if ids else []
        parts += [f"adding {ids_text(record.adding_replicas)}"] if record.adding_replicas else []
        parts += [f"removing {ids_text(record.removing_replicas)}"] if record.removing_replicas else []
        return f"partition {self.topic_name(record.topic_id)}-{record.partition_id}: {', '.join(parts)}"

    def _of_change(self, record: mr.PartitionChangeRecord) -> str:
        before = None if self.image is None else self.image.partition(record.topic_id, record.partition_id)
        where = f"partition {self.topic_name(record.topic_id)}-{record.partition_id}"
        changes = partition_changes(record, PriorPartition.of(before))
        return f"{where}: {', '.join(changes) or 'a new partition epoch'}"


class PriorPartition:
    """The known state of a partition before a change."""

    def __init__(self, leader: int | None, lists: dict[str, Sequence[int]]) -> None:
        self.leader: Final = leader
        self.lists: Final = lists

    @classmethod
    def of(cls, partition: object) -> PriorPartition:
        """Of an image's partition, or of None."""
        if partition is None:
            return cls(None, {})
        names = ("isr", "replicas", "elr", "last_known_elr", "adding_replicas", "removing_replicas")
        return cls(getattr(partition, "leader", None), {name: getattr(partition, name) for name in names})


def partition_changes(record: mr.PartitionChangeRecord, before: PriorPartition) -> list[str]:
    """The parts of a change, each with the previous value if it is known."""
    found = []
    if record.leader != _NO_CHANGE:
        old = "" if before.leader is None else f"{leader_text(before.leader)} -> "
        again = before.leader == record.leader
        found.append(
            f"leader {leader_text(record.leader)} again" if again else f"leader {old}{leader_text(record.leader)}"
        )
    for label, name, ids in (
        ("ISR", "isr", record.isr),
        ("replicas", "replicas", record.replicas),
        ("ELR", "elr", record.eligible_leader_replicas),
        ("last known ELR", "last_known_elr", record.last_known_elr),
        ("adding", "adding_replicas", record.adding_replicas),
        ("removing", "removing_replicas", record.removing_replicas),
    ):
        if ids is not None:
            old_ids = before.lists.get(name)
            if old_ids is None or list(old_ids) != list(ids):
                found.append(f"{label} {'' if old_ids is None else f'{ids_text(old_ids)} -> '}{ids_text(ids)}")
    if record.leader_recovery_state >= 0:
        found.append("recovering from an unclean election" if record.leader_recovery_state else "recovered")
    if record.directories is not None:
        found.append("directories assigned")
    return found


def ids_text(ids: Sequence[int] | None) -> str:
    """`[1,2,3]`."""
    return f"[{','.join(map(str, ids or ()))}]"


def leader_text(leader: int) -> str:
    """The id, or `none`."""
    return "none" if leader < 0 else str(leader)


def resource_text(resource_type: int, name: str) -> str:
    """`topic orders`, `broker 1`, `all brokers`."""
    try:
        kind = _RESOURCES[ResourceType(resource_type)]
    except (KeyError, ValueError):
        kind = f"resource type {resource_type}"
    return f"all {kind}s" if not name and resource_type == ResourceType.BROKER else f"{kind} {name}"


def voters_text(voters: Sequence[Voter]) -> str:
    """`1@host:9093, 2@host:9093`; ids alone where nothing else is known."""
    return ", ".join(_voter_text(voter) for voter in voters) or "none"


def _voter_text(voter: Voter) -> str:
    where = "".join(f"@{one.host}:{one.port}" for one in voter.endpoints[:1])
    return f"{voter.key.id}{where}"


def _of_control(entry: Entry) -> str:
    match entry.control:
        case control_records.LEADER_CHANGE:
            leader_id, voters = decode_leader_change(entry.value)
            return f"controller {leader_id} leads epoch {entry.epoch}, voters {ids_text(voters)}"
        case control_records.KRAFT_VERSION:
            return f"kraft.version is {decode_kraft_version(entry.value)}"
        case control_records.KRAFT_VOTERS:
            return f"the voters are {voters_text(decode_voters(entry.value).voters)}"
        case control_records.SNAPSHOT_HEADER:
            return "a snapshot begins"
        case control_records.SNAPSHOT_FOOTER:
            return "the snapshot ends"
        case _:
            return f"a control record of type {entry.control}, which klamm does not know"


def _of_config(record: mr.ConfigRecord) -> str:
    where = resource_text(record.resource_type, record.resource_name)
    value = config_value(record.resource_type, record.name, record.value)
    return f"{where}: {record.name} reset" if value is None else f"{where}: {record.name}={value}"


def _of_registration(record: mr.RegisterBrokerRecord | mr.RegisterControllerRecord) -> str:
    endpoints = ", ".join(f"{one.name}://{one.host}:{one.port}" for one in record.end_points)
    if isinstance(record, mr.RegisterControllerRecord):
        return f"controller {record.controller_id} registered: {endpoints}"
    marks = [f"epoch {record.broker_epoch}", *([] if record.rack is None else [f"rack {record.rack}"])]
    marks += ["fenced"] * record.fenced + ["shutting down"] * record.in_controlled_shutdown
    marks += ["migrating from ZooKeeper"] * record.is_migrating_zk_broker
    return f"broker {record.broker_id} registered ({', '.join(marks)}): {endpoints}"


def _of_registration_change(record: mr.BrokerRegistrationChangeRecord) -> str:
    found = {1: ["fenced"], -1: ["unfenced"]}.get(record.fenced, [])
    found += ["begins its controlled shutdown"] * (record.in_controlled_shutdown == 1)
    found += [f"has {len(record.log_dirs)} log directories online"] if record.log_dirs else []
    if record.cordoned_log_dirs is not None:
        found.append(f"has {len(record.cordoned_log_dirs)} log directories cordoned")
    return f"broker {record.broker_id} {', '.join(found) or 'unchanged'}"


def _of_quota(record: mr.ClientQuotaRecord) -> str:
    entity = ", ".join(
        f"{one.entity_type} {'default' if one.entity_name is None else one.entity_name}" for one in record.entity
    )
    return f"quota of {entity}: {record.key} {'removed' if record.remove else record.value}"


def _of_acl(record: mr.AccessControlEntryRecord | mr.RemoveAccessControlEntryRecord) -> str:
    if isinstance(record, mr.RemoveAccessControlEntryRecord):
        return f"ACL {uuid_text(record.id)} removed"
    return (
        f"ACL {uuid_text(record.id)}: {record.principal} from {record.host}, operation {record.operation} on "
        f"{record.resource_name} (resource type {record.resource_type}, pattern {record.pattern_type}), "
        f"permission {record.permission_type}"
    )


def _of_small(record: MetadataRecord) -> str:
    match record:
        case mr.UnregisterBrokerRecord():
            return f"broker {record.broker_id} unregistered"
        case mr.FenceBrokerRecord():
            return f"broker {record.id} fenced"
        case mr.UnfenceBrokerRecord():
            return f"broker {record.id} unfenced"
        case mr.FeatureLevelRecord():
            return f"feature {record.name} is {record.feature_level}"
        case mr.ProducerIdsRecord():
            return f"producer ids up to {record.next_producer_id - 1} go to broker {record.broker_id}"
        case mr.UserScramCredentialRecord():
            return f"{_MECHANISMS.get(record.mechanism, record.mechanism)} credential of user {record.name} set"
        case mr.RemoveUserScramCredentialRecord():
            return f"{_MECHANISMS.get(record.mechanism, record.mechanism)} credential of user {record.name} removed"
        case mr.DelegationTokenRecord():
            return f"delegation token {record.token_id} of {record.owner}"
        case mr.RemoveDelegationTokenRecord():
            return f"delegation token {record.token_id} removed"
        case mr.BeginTransactionRecord():
            return "a metadata transaction begins" + (f": {record.name}" if record.name else "")
        case mr.EndTransactionRecord():
            return "the metadata transaction ends"
        case mr.AbortTransactionRecord():
            return "the metadata transaction is aborted" + (f": {record.reason}" if record.reason else "")
        case mr.ClearElrRecord():
            return f"ELR of {f'topic {record.topic_name}' if record.topic_name else 'every topic'} cleared"
        case mr.NoOpRecord():
            return "nothing: the controller shows that it is alive"
        case _:
            return type(record).__name__.removesuffix("Record")
