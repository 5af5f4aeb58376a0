"""The quorum as the control records of a log say: its leader, its voters, its kraft.version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klamm.metadata.log.entries import Entry
from klamm.raft.log import control_records
from klamm.raft.log.control_records import decode_kraft_version, decode_leader_change, decode_voters
from klamm.raft.voters.voter_set import Voter, VoterSet


class Quorum(NamedTuple):
    """As of one record. What no record said yet is None or empty; of static voters only ids are known."""

    leader_id: int | None = None
    leader_epoch: int | None = None
    kraft_version: int = 0
    voters: tuple[Voter, ...] = ()

    def after(self, entries: Iterable[Entry]) -> Quorum:
        """The quorum after more records. `ControlRecordError`: one of them is damaged."""
        found = self
        for entry in entries:
            found = found.after_one(entry)
        return found

    def after_one(self, entry: Entry) -> Quorum:
        """The quorum after a record."""
        match entry.control:
            case control_records.LEADER_CHANGE:
                leader_id, ids = decode_leader_change(entry.value)
                found = self._replace(leader_id=leader_id, leader_epoch=entry.epoch)
                is_static = self.kraft_version == 0
                return found._replace(voters=VoterSet.of_ids(sorted(set(ids))).voters) if is_static else found
            case control_records.KRAFT_VERSION:
                return self._replace(kraft_version=decode_kraft_version(entry.value))
            case control_records.KRAFT_VOTERS:
                return self._replace(voters=decode_voters(entry.value).voters)
            case _:
                return self
