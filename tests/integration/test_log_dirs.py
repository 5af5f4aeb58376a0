"""Several log directories, of which one cannot be opened when the node starts: the others serve."""

from __future__ import annotations

from pathlib import Path

from klamm.cli.client import Client, RefusedError
from klamm.cli.group_admin import LATEST, list_offsets
from klamm.cli.produce import Producer
from klamm.cli.topic_admin import create
from klamm.protocol.errors import ErrorCode
from klamm.records import NewRecord
from tests.support.node_process import NodeProcess

PARTITIONS = 4


def ends(client: Client, topic: str, partitions: int = PARTITIONS) -> list[int | ErrorCode]:
    found: list[int | ErrorCode] = []
    for index in range(partitions):
        try:
            found.append(list_offsets(client, {(topic, index): LATEST})[topic, index])
        except RefusedError as error:
            found.append(error.code)
    return found


def test_what_may_be_in_a_missing_directory_is_not_made_anew(tmp_path: Path) -> None:
    """An empty log elsewhere would be taken for the partition, and its offsets begin anew."""
    folders = [tmp_path / "one", tmp_path / "two"]
    node = NodeProcess(tmp_path / "data", overrides={"log.dirs": ",".join(map(str, folders))})
    with node, Client(node.bootstrap) as client:
        create(client, ["kept"], partitions=PARTITIONS)
        for index in range(PARTITIONS):
            producer = Producer(client, "kept", "none", index)
            producer.add(NewRecord(b"x"))
            producer.flush()
    lost = sorted(int(found.name.removeprefix("kept-")) for found in folders[1].glob("kept-*"))
    assert 0 < len(lost) < PARTITIONS
    folders[1].rename(tmp_path / "away")
    folders[1].touch()
    with node, Client(node.bootstrap) as client:
        assert ends(client, "kept") == [
            ErrorCode.KAFKA_STORAGE_ERROR if index in lost else 1 for index in range(PARTITIONS)
        ]
        create(client, ["new"], partitions=2)
        assert ends(client, "new", 2) == [0, 0]
    folders[1].unlink()
    (tmp_path / "away").rename(folders[1])
    with node, Client(node.bootstrap) as client:
        assert ends(client, "kept") == [1] * PARTITIONS
