"""After `__consumer_offsets` was compacted and the broker killed, the same groups and offsets are loaded."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from klamm.protocol.api_key import ApiKey
from tests.interop.peers import Peer
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

OFFSETS = "__consumer_offsets"
GROUPS = 8
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}


def clean_up_to(data: Path) -> int:
    checkpoint = data / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    return next((int(line.split()[2]) for line in lines if line.split()[:2] == [OFFSETS, "0"]), 0)


class Groups:
    """A client of a node's groups."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.admin = AdminClient({"bootstrap.servers": node.bootstrap})
        self.peer = Peer(node.port)
        # The first request creates the topic; the response has offsets once they are loaded.
        for key, asked in ((10, {"key": "x"}), (9, {"group_id": "x", "topics": None, "require_stable": False})):
            wait_until(lambda key=key, asked=asked: self.is_answered(key, asked), "no coordinator")  # type: ignore[misc]

    def make_segments_small(self) -> None:
        """Node configs do not allow such small segments."""
        entry = ConfigEntry("internal.segment.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", OFFSETS, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def is_answered(self, key: int, asked: dict[str, object]) -> bool:
        return bool(self.peer.ask(key, {9: 7, 10: 0}[key], asked)["error_code"] == "NONE")

    def commit(self, group: str, offset: int) -> None:
        """Commit without being a member."""
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition("t", index, offset) for index in range(2)])]
        for future in self.admin.alter_consumer_group_offsets(asked).values():
            future.result(30)

    def join(self, group: str) -> None:
        """A member that joins, commits and leaves."""
        settings = {"bootstrap.servers": self.node.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"enable.auto.commit": False})
        consumer.subscribe(["t"])
        assert consumer.poll(30) is not None
        consumer.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
        consumer.close()

    def state(self) -> dict[str, object]:
        """State, protocol type and offsets of every listed group."""
        listed = self.peer.ask(ApiKey.LIST_GROUPS, 4, {"states_filter": ()})["groups"]
        found: dict[str, object] = {}
        for group in listed:
            fetched = self.peer.ask(
                ApiKey.OFFSET_FETCH, 7, {"group_id": group["group_id"], "topics": None, "require_stable": False}
            )
            found[group["group_id"]] = (group["group_state"], group["protocol_type"], sorted_offsets(fetched))
        return found


def sorted_offsets(fetched: dict[str, list[dict[str, object]]]) -> list[str]:
    return sorted(str(topic) for topic in fetched["topics"])


def clean_all(groups: Groups, mark: int) -> None:
    """Commit until the cleaner has passed all earlier segments, twice, so that tombstones are removed."""
    for turn in range(2):
        target = int(max(path.stem for path in (groups.node.data / f"{OFFSETS}-0").glob("*.log")))

        def is_past(turn: int = turn, target: int = target) -> bool:
            for number in range(20):
                groups.commit("writer", mark + 100 * turn + number)
            return clean_up_to(groups.node.data) > target

        wait_until(is_past, "not cleaned")
    groups.commit("writer", mark)


def test_groups_and_offsets_survive_the_compaction_of_their_log_and_a_crash(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", overrides=SETTINGS)
    with node:
        groups = Groups(node)
        groups.make_segments_small()
        groups.admin.create_topics([NewTopic("t", 2, 1)])["t"].result(30)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for index in range(2):
            producer.produce("t", b"value", partition=index)
        assert producer.flush(30) == 0
        groups.join("joined")
        groups.join("joined and gone")
        for number in range(GROUPS):
            for offset in range(3):
                groups.commit(f"g{number}", number + offset)
        gone = ["g3", "g5", "joined and gone"]
        for future in groups.admin.delete_consumer_groups(gone).values():
            future.result(30)
        clean_all(groups, 1000)
        before = groups.state()
        assert before.keys() == {"writer", "joined"} | {f"g{number}" for number in range(GROUPS)} - set(gone)
        node.kill()
        node.start()
        groups = Groups(node)
        assert groups.state() == before
        # A deleted group that is used again starts as a new one, and its log is equal after compaction.
        groups.commit("g3", 77)
        clean_all(groups, 2000)
        before = groups.state()
        assert "g3" in before
        assert "g5" not in before
        assert node.stop() == 0
        node.start()
        assert Groups(node).state() == before
