"""Three controllers and a broker as processes: the active controller is killed while a client creates topics."""

from __future__ import annotations

import threading
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.node_process import METADATA
from tests.support.quorum_processes import QuorumProcesses
from tests.support.waiting import wait_until

BOUND_S = 60


class Creating:
    """A client that creates one topic after the other until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.created: list[str] = []
        self.refused: list[KafkaError] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over:
            name, number = f"topic-{number}", number + 1
            try:
                asked = self._admin.create_topics([NewTopic(name, 1, 1)], request_timeout=BOUND_S)[name]
                asked.result(BOUND_S)
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                # The broker retries when a response is lost, and the retry finds that the topic exists.
                if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    self.refused.append(error)
                    continue
            self.created.append(name)

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.created) >= count, bound_s=BOUND_S)

    def stop(self) -> None:
        self._is_over = True
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive()

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=BOUND_S).topics)


def test_topics_are_created_while_active_controllers_are_killed(tmp_path: Path) -> None:
    with QuorumProcesses(tmp_path / "cluster") as cluster:
        creating = Creating(cluster.broker.bootstrap)
        try:
            creating.wait_for(3)
            for _ in range(2):
                leader = cluster.leader_id()
                assert leader in cluster.controllers, cluster.log()
                before = len(creating.created)
                cluster.controllers[leader].kill()
                # With three more topics, at least one was requested after the kill.
                creating.wait_for(before + 3)
                assert cluster.leader_id() != leader
                cluster.controllers[leader].launch()
        finally:
            creating.stop()
        assert creating.refused == [], cluster.log()
        # The broker shows an acknowledged topic once it has applied the record.
        wait_until(lambda: creating.topics() >= set(creating.created), bound_s=BOUND_S)
        # The new leader's log contains all of them, and the broker finds them there after a restart.
        cluster.broker.kill()
        cluster.broker.start(request=METADATA)
        wait_until(lambda: creating.topics() >= set(creating.created), bound_s=BOUND_S)
        # The broker does not wait for a permission to stop when all controllers are gone.
        for controller in cluster.controllers.values():
            controller.kill()
        assert cluster.broker.stop(BOUND_S) == 0
        assert "stops without moving leaders" in cluster.broker.log()
