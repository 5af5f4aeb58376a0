"""The persistent election state (epoch, vote, leader) and its file format, quorum-state (`QuorumStateData`)."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from klamm.protocol.value import Value
from klamm.raft.voters.voter_set import ReplicaKey

NONE_ID = -1
_ZERO_DIRECTORY = bytes(16)
_INT32_MAX = 2**31 - 1


class ElectionState(Value):
    """The content of quorum-state. A leader and a vote may both be known for one epoch (since Kafka 4.0)."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


class QuorumStateError(Exception):
    """An invalid quorum-state file. Guessing its content could make this replica vote twice in one epoch."""


def encode(state: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]) -> bytes:
    """The file's bytes, `data_version` 0 for kraft.version 0 and 1 from then on."""
    fields: dict[str, Any] = {
        "leaderId": NONE_ID if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": NONE_ID if state.voted is None else state.voted.id,
    }
    if kraft_version == 0:
        voters = [{"voterId": voter_id} for voter_id in voter_ids]
        fields = {"clusterId": "", **fields, "appliedOffset": 0, "currentVoters": voters, "data_version": 0}
    else:
        directory_id = (state.voted.directory_id if state.voted else None) or _ZERO_DIRECTORY
        fields |= {"votedDirectoryId": _to_base64(directory_id), "data_version": 1}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes) -> ElectionState:
    """Read either version, keys in any order. Raises QuorumStateError with the problem of the content."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise QuorumStateError(f"not a JSON object: {error}") from None
    if not isinstance(fields, dict):
        raise QuorumStateError(f"not a JSON object but {type(fields).__name__}")
    version = _int_field(fields, "data_version", low=0)
    if version not in (0, 1):
        raise QuorumStateError(f"data_version is {version}, and only 0 and 1 are known")
    voted_id = _int_field(fields, "votedId", low=NONE_ID)
    leader_id = _int_field(fields, "leaderId", low=NONE_ID)
    directory_id = _directory_field(fields) if version == 1 else None
    return ElectionState(
        epoch=_int_field(fields, "leaderEpoch", low=0),
        leader_id=None if leader_id == NONE_ID else leader_id,
        voted=None if voted_id == NONE_ID else ReplicaKey(voted_id, directory_id),
    )


def _int_field(fields: dict[str, Any], name: str, low: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not low <= value <= _INT32_MAX:
        raise QuorumStateError(f"{name} is {value!r}, and must be a number from {low} to {_INT32_MAX}")
    return value


def _directory_field(fields: dict[str, Any]) -> bytes | None:
    text = fields.get("votedDirectoryId")
    try:
        directory_id = urlsafe_b64decode(f"{text}==") if isinstance(text, str) else b""
    except ValueError:
        directory_id = b""
    if len(directory_id) != len(_ZERO_DIRECTORY):
        raise QuorumStateError(f"votedDirectoryId is {text!r}, and must be 16 bytes in base64url")
    return None if directory_id == _ZERO_DIRECTORY else directory_id


def _to_base64(directory_id: bytes) -> str:
    return urlsafe_b64encode(directory_id).decode().rstrip("=")
