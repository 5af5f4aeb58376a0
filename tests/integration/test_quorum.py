"""Three controllers in their own processes: they elect, replicate, survive a kill of their leader, and catch up."""

from __future__ import annotations

from pathlib import Path

from tests.support import controller_processes


def test_writes_survive_a_kill_of_the_leader_and_it_catches_up(tmp_path: Path) -> None:
    with controller_processes.running(tmp_path) as quorum:
        _, described = quorum.leader()
        assert [voter.replica_id for voter in described.current_voters] == [1, 2, 3]
        written = {f"value-{number}": 1000 + number for number in range(20)}
        for name, value in written.items():
            quorum.write(name, value)

        leader, _ = quorum.leader()
        leader.kill()
        others = [node_id for node_id in quorum.controllers if node_id != leader.id]
        written["after"] = 2000
        quorum.write("after", 2000, others)
        for node_id in others:
            quorum.wait_for(node_id, written)

        leader.start()
        quorum.wait_for(leader.id, written)
        # It follows, so the quorum can lose another controller.
        successor, _ = quorum.leader()
        successor.kill()
        others = [node_id for node_id in quorum.controllers if node_id != successor.id]
        written["last"] = 3000
        quorum.write("last", 3000, others)
        for node_id in others:
            quorum.wait_for(node_id, written)
