"""A replica whose quorum-state is missing or damaged must not vote again if it has peers; a sole voter continues."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from klamm.raft.driver import QuorumStateFile, read_election
from klamm.raft.election.election_state import ElectionState, QuorumStateError, encode


@pytest.mark.parametrize("has_peers", [True, False])
def test_a_new_replica_has_none(tmp_path: Path, *, has_peers: bool) -> None:
    assert read_election(QuorumStateFile(tmp_path), 0, has_peers=has_peers) is None


def test_a_voter_with_peers_does_not_start_without_it(tmp_path: Path) -> None:
    with pytest.raises(
        QuorumStateError, match=r"quorum-state is missing, although the log ends at offset 7\. Restore it"
    ):
        read_election(QuorumStateFile(tmp_path), 7, has_peers=True)


def test_a_sole_voter_continues_from_its_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert read_election(QuorumStateFile(tmp_path), 7, has_peers=False) is None
    [record] = caplog.records
    assert "quorum-state is missing" in record.getMessage()


@pytest.mark.parametrize(("has_peers", "way_out"), [(True, "let it join the others"), (False, "Remove it")])
def test_a_damaged_quorum_state_is_rejected_with_a_remedy(tmp_path: Path, way_out: str, *, has_peers: bool) -> None:
    store = QuorumStateFile(tmp_path)
    whole = encode(ElectionState(3, 1, None), 1, (1,))
    store.write(whole)
    assert read_election(store, 7, has_peers=has_peers) == ElectionState(3, 1, None)
    store.write(whole[:10])
    with pytest.raises(QuorumStateError, match=rf"quorum-state cannot be understood: .*{way_out}"):
        read_election(store, 7, has_peers=has_peers)
