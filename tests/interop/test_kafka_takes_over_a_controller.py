"""A controller of a quorum of three is replaced by Apache Kafka on its folder and properties, and later back."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import pytest

from klamm.protocol.messages.cluster import QuorumPartitionData
from tests.support.foreign import require
from tests.support.mixed_quorum import EARLY_SNAPSHOTS, MixedQuorum
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

MOVED, OTHERS = 1, (2, 3)
# Only the one that moves campaigns by itself; the others do so after EndQuorumEpoch.
QUICK = {"controller.quorum.election.timeout.ms": "200"}
STILL = {
    "controller.quorum.election.timeout.ms": "60000",
    "controller.quorum.fetch.timeout.ms": "60000",
    "klamm.crash.detection": "false",
}


@pytest.fixture(autouse=True)
def _kafka() -> None:
    require("java", "mvn")


def folder_of(quorum: MixedQuorum, node_id: int) -> Path:
    return quorum.controllers[node_id].data / "__cluster_metadata-0"


def newest_snapshot(quorum: MixedQuorum) -> int:
    """The end offset of the newest snapshot in the folder that moves; -1 when there is none."""
    return max((int(path.name.split("-")[0]) for path in folder_of(quorum, MOVED).glob("*.checkpoint")), default=-1)


def let_it_lead(quorum: MixedQuorum) -> QuorumPartitionData:
    """Make it the leader, elected by the other follower, which does not campaign by itself.

    A restarted leader notifies the voters that it resigned, and all of them campaign at once; so it is restarted last.
    Retried if only the other voter received a record just before the leader was killed.
    """
    for _ in range(5):
        leader, described = quorum.leader()
        if leader.id == MOVED:
            return described
        [follower] = [node_id for node_id in OTHERS if node_id != leader.id]
        quorum.kill(leader.id)
        quorum.kill(follower)
        quorum.launch(follower)
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: quorum.controllers[MOVED].ask_quorum() is not None, bound_s=10)
        quorum.launch(leader.id)
    raise AssertionError(f"controller {MOVED} did not become the leader:\n" + "\n".join(quorum.logs()))


def test_a_folder_goes_to_apache_kafka_and_comes_back(tmp_path: Path) -> None:
    overrides = {each: EARLY_SNAPSHOTS | (QUICK if each == MOVED else STILL) for each in (MOVED, *OTHERS)}
    written: dict[str, int] = {}
    epoch = 0
    with contextlib.closing(MixedQuorum(tmp_path, [], overrides)) as quorum:
        for node_id in OTHERS:
            quorum.launch(node_id)
        for life, java in enumerate(([], [MOVED], [])):
            quorum.run_by_java(java)
            snapshot = newest_snapshot(quorum)
            assert (snapshot >= 0) == (life > 0), "from the second run on, the folder contains one"
            quorum.launch(MOVED)
            if life:
                quorum.wait_for(MOVED, written)
            described = let_it_lead(quorum)
            assert described.leader_epoch > epoch, "it leads in an epoch of its own"
            epoch = described.leader_epoch
            acknowledged = set()
            for number in range(40):
                name = f"life-{life}-{number}"
                written[name] = 1000 + number
                acknowledged.add(quorum.write(name, written[name]))
            assert MOVED in acknowledged
            for node_id in quorum.controllers:
                quorum.wait_for(node_id, written)
            wait_until(lambda before=snapshot: newest_snapshot(quorum) > before, bound_s=60)
            quorum.stop(MOVED)
            # The others continue without it, so it lags when it is restarted.
            written[f"without-{life}"] = 2000
            assert quorum.write(f"without-{life}", 2000, OTHERS) in OTHERS
        quorum.launch(MOVED)
        quorum.wait_for(MOVED, written)
        # Each system's log contains records of the other, with the same bytes as on the nodes that were not replaced.
        logs = [(folder_of(quorum, each) / "00000000000000000000.log").read_bytes() for each in (MOVED, *OTHERS)]
        same = sum(1 for _ in itertools.takewhile(lambda three: len(set(three)) == 1, zip(*logs, strict=False)))
        assert [name for name in written if name.encode() not in logs[0][:same]] == []
