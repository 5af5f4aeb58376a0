"""The fields of metadata records in a form that JSON has: ids as Kafka writes them, nothing that is secret."""

from __future__ import annotations

from typing import Any, Final

from klamm._engine.config import find_config_key
from klamm.metadata.log.entries import Entry
from klamm.protocol.generated.metadata_records import ConfigRecord, MetadataRecord, UserScramCredentialRecord
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.uuids import uuid_text
from klamm.protocol.value import Slotted
from klamm.raft.log import control_records
from klamm.raft.log.control_records import decode_kraft_version, decode_leader_change, decode_voters
from klamm.raft.voters.voter_set import Voter

HIDDEN: Final = "(hidden)"
_SECRET: Final = frozenset({"salt", "stored_key", "server_key"})
_SCOPES: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "node",
    ResourceType.CLIENT_METRICS: "client-metrics",
    ResourceType.GROUP: "group",
}


def fields_of(entry: Entry) -> dict[str, Any]:
    """A record's fields by name; for a damaged or unknown record, its bytes in hexadecimal and the problem."""
    try:
        return _fields_of(entry)
    except ValueError as error:
        return {"value": entry.value.hex(), "error": str(error)}


def _fields_of(entry: Entry) -> dict[str, Any]:
    if entry.control is None:
        return record_fields(entry.record())
    match entry.control:
        case control_records.LEADER_CHANGE:
            leader_id, voters = decode_leader_change(entry.value)
            return {"leader_id": leader_id, "voters": list(voters)}
        case control_records.KRAFT_VERSION:
            return {"kraft_version": decode_kraft_version(entry.value)}
        case control_records.KRAFT_VOTERS:
            return {"voters": list(map(voter_fields, decode_voters(entry.value).voters))}
        case control_records.SNAPSHOT_HEADER | control_records.SNAPSHOT_FOOTER:
            return {}
        case _:
            return {"value": entry.value.hex()}


def record_fields(record: MetadataRecord) -> dict[str, Any]:
    """The fields of a metadata record."""
    fields = {name: _plain(getattr(record, name)) for name in type(record).__slots__}
    if isinstance(record, UserScramCredentialRecord):
        fields |= dict.fromkeys(_SECRET, HIDDEN)
    elif isinstance(record, ConfigRecord):
        fields["value"] = config_value(record.resource_type, record.name, record.value)
    return fields


def voter_fields(voter: Voter) -> dict[str, Any]:
    """A voter, its directory id where it is known."""
    directory_id = voter.key.directory_id
    return {
        "id": voter.key.id,
        "directory_id": None if directory_id is None else uuid_text(directory_id),
        "endpoints": [f"{one.listener}://{one.host}:{one.port}" for one in voter.endpoints],
    }


def config_value(resource_type: int, key: str, value: str | None) -> str | None:
    """The value as it may be shown: the value of a password or of an unknown key is hidden."""
    try:
        known = find_config_key(_SCOPES[ResourceType(resource_type)], key)  # type: ignore[arg-type]
    except (KeyError, ValueError):
        known = None
    return HIDDEN if value is not None and (known is None or known.is_sensitive) else value


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is bytes:
        return uuid_text(value) if len(value) == 16 else value.hex()
    if kind is list or kind is tuple:
        return [_plain(one) if type(one) is not int else one for one in value]
    if isinstance(value, Slotted):
        return {name: _plain(getattr(value, name)) for name in kind.__slots__}
    return value
