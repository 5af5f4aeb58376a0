"""Most controllers are killed and their disks lost: the rest keeps all records, and the quorum is enlarged again."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.cli.main import run
from klamm.metadata import History
from tests.support.dynamic_quorum import BROKER, DynamicQuorum
from tests.support.node_process import METADATA, VERSIONS
from tests.support.quorum_processes import HOST, FileNode, QuorumProcesses
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)
BOUND_S = 60


def create(broker: FileNode, name: str) -> None:
    """Retry until it is acknowledged: a restarted broker is fenced for a moment, and gets no replica then."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def is_created() -> bool:
        try:
            admin.create_topics([NewTopic(name, 1, 1)], request_timeout=BOUND_S)[name].result(BOUND_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:  # the client retried its request
                return True
            if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                raise
            return False
        return True

    wait_until(is_created, bound_s=BOUND_S)


def topics(broker: FileNode) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=BOUND_S).topics)


def knows(node: FileNode, topic: str) -> bool:
    return topic in History(node.data).state_at().image.topic_names()


def lose(node: FileNode) -> None:
    """Lose the process and the disk."""
    node.kill()
    shutil.rmtree(node.data)


def recover(capsys: pytest.CaptureFixture[str], *nodes: FileNode) -> dict[str, Any]:
    """A dry run, then the same with --apply; returns the output."""
    files = [str(node.file) for node in nodes]
    capsys.readouterr()
    said = []
    for more in ([], ["--apply"]):
        assert run(["quorum", "recover", "--json", *files, *more]) == 0, capsys.readouterr()
        said.append(json.loads(capsys.readouterr().out))
    dry, done = said
    assert done | {"applied": False, "kept": []} == dry
    return dict(done)


def grow(quorum: DynamicQuorum, first: int = 1) -> None:
    """From a single controller to three."""
    for node_id in sorted(quorum.controllers.keys() - {first}):
        quorum.start(node_id)
        quorum.wait_for_observer(node_id)
        file, servers = quorum.controllers[node_id].file, quorum.servers
        assert run(["quorum", "add", str(file), "--bootstrap-controller", servers]) == 0
    quorum.wait_for([1, 2, 3])


def test_a_former_leader_continues_with_a_brokers_longer_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The leader is frozen, the others continue and are lost: only a broker has the records they acknowledged."""
    with DynamicQuorum(tmp_path / "quorum", 3) as quorum:
        grow(quorum)
        quorum.start_broker()
        create(quorum.broker, "before")
        leader_id = quorum.wait_for([1, 2, 3]).leader_id
        former, others = quorum.controllers[leader_id], sorted({1, 2, 3} - {leader_id})
        wait_until(lambda: knows(former, "before"))
        os.kill(former.pid, signal.SIGSTOP)
        create(quorum.broker, "of-the-others")
        wait_until(lambda: knows(quorum.broker, "of-the-others"))
        for node_id in others:
            lose(quorum.controllers[node_id])
        former.kill()
        quorum.broker.kill()
        assert not knows(former, "of-the-others")

        done = recover(capsys, former, quorum.broker)
        assert (done["chosen"]["node"], done["new_voters"], done["lost"]) == (BROKER, [leader_id], others)

        quorum.start(leader_id)
        assert quorum.wait_for([leader_id]).leader_id == leader_id
        quorum.broker.start(request=METADATA)
        assert topics(quorum.broker) >= {"before", "of-the-others"}
        create(quorum.broker, "after")
        grow(quorum, leader_id)
        # The new ones are a majority, so committed records are on them.
        former.kill()
        create(quorum.broker, "of-the-new")
        wait_until(lambda: topics(quorum.broker) >= {"before", "of-the-others", "after", "of-the-new"}, bound_s=BOUND_S)


def test_a_follower_of_a_static_quorum_continues_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with QuorumProcesses(tmp_path / "quorum") as quorum:
        for number in range(3):
            create(quorum.broker, f"topic-{number}")
        leader = quorum.leader_id()
        assert leader is not None
        left, second = (node for each, node in quorum.controllers.items() if each != leader)
        # It is acknowledged, and in the log of the remaining controller, so it must not be lost.
        wait_until(lambda: knows(left, "topic-2"))
        for node in (quorum.controllers[leader], second):
            lose(node)
        left.kill()
        quorum.broker.kill()
        before = History(left.data).state_at()

        done = recover(capsys, left)
        assert (done["chosen"]["node"], done["new_voters"]) == (left.node_id, [left.node_id])
        assert History(left.data).state_at().image == before.image

        voters = f"controller.quorum.voters={left.node_id}@{HOST}:{left.port}"
        assert done["next"][0].endswith(f": {voters.partition('=')[2]}")
        for node in (left, quorum.broker):
            node.file.write_text(
                replaced(node.file.read_text(), lambda line: voters if line.startswith(voters[:24]) else line)
            )
        left.start(request=VERSIONS)
        quorum.broker.start(request=METADATA)
        assert topics(quorum.broker) >= {"topic-0", "topic-1", "topic-2"}
        create(quorum.broker, "after")


def replaced(text: str, change: Callable[[str], str]) -> str:
    return "".join(f"{change(line)}\n" for line in text.splitlines())
