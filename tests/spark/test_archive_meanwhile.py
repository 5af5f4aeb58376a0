"""Changes of a topic while it is archived, and kills between the steps of a restore."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from klamm.admin import configs, topics
from klamm.admin.client import Client
from klamm.pipelines.archive import archive, read_mapping, restore, restoring
from klamm.pipelines.archive.store import read_manifest
from klamm.pipelines.errors import PipelineError
from tests.spark.producing import numbered, send
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]


class Once:
    """A progress callback that acts once, when everything is planned and nothing has been read."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action: Callable[[], object] | None = action

    def __call__(self, done: int, total: int) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


def made_again(bootstrap: str, name: str) -> None:
    with Client(bootstrap) as client:
        topics.delete(client, [name])
        wait_until(lambda: name not in {one.name for one in topics.topics(client)}, bound_s=30)
        topics.create(client, [name], partitions=1, configs={"retention.ms": "-1"})


def delete_before(bootstrap: str, name: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(name, 0, offset)
    admin.delete_records([place])[place].result(30)


def test_a_topic_recreated_meanwhile_is_not_archived_as_the_old_one(
    spark: SparkSession, bootstrap: str, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    send(bootstrap, name, numbered(10))

    def replace() -> None:
        made_again(bootstrap, name)
        send(bootstrap, name, numbered(10, start=100))

    with pytest.raises(PipelineError, match=f"topic '{name}' was deleted and made again"):
        archive([name], tmp_path, bootstrap=bootstrap, spark=spark, progress=Once(replace))
    assert read_manifest(tmp_path).records(name) == 0
    assert not list(tmp_path.rglob("*.parquet"))


def test_records_deleted_by_retention_meanwhile_are_reported_or_recorded(
    spark: SparkSession, bootstrap: str, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic()
    send(bootstrap, name, numbered(10))

    def taken_before(offset: int) -> Once:
        return Once(lambda: delete_before(bootstrap, name, offset))

    with pytest.raises(PipelineError, match=r"some data is lost: .* \(for an archive: --allow-loss"):
        archive([name], tmp_path / "strict", bootstrap=bootstrap, spark=spark, progress=taken_before(3))
    kept = tmp_path / "kept"
    for count, end in ((5, 5), (4, 16)):
        found = archive([name], kept, bootstrap=bootstrap, allow_loss=True, spark=spark, progress=taken_before(end))
        assert found.records == count
        send(bootstrap, name, numbered(10))
    ranges = read_manifest(kept).ranges[name, 0]
    assert [(one.start, one.end, one.records, one.lost) for one in ranges] == [
        (5, 10, 5, False),
        (10, 16, 0, True),
        (16, 20, 4, False),
    ]


def test_a_mapping_omits_a_deleted_topic(spark: SparkSession, bootstrap: str, topic: MakeTopic, tmp_path: Path) -> None:
    name, state = topic(), tmp_path / "state"
    copy = f"copy-{name}"
    send(bootstrap, name, numbered(10))
    for number, first in enumerate((0, 4)):
        delete_before(bootstrap, name, first)
        archive([name], tmp_path / str(number), bootstrap=bootstrap, spark=spark)
        restore(tmp_path / str(number), bootstrap=bootstrap, rename={name: copy}, apply=True, state=state, spark=spark)
        mapping = read_mapping(state)[copy]
        assert [mapping.translate(0, offset) for offset in (2, first, 10)] == [max(2 - first, 0), 0, 10 - first]
        with Client(bootstrap) as client:
            topics.delete(client, [copy])
            wait_until(lambda: copy not in {one.name for one in topics.topics(client)}, bound_s=30)


def test_a_restore_killed_after_creating_a_topic_completes_it(
    spark: SparkSession, bootstrap: str, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    copy = f"copy-{name}"
    with Client(bootstrap) as client:
        configs.alter(client, "topic", name, {"message.timestamp.type": "LogAppendTime"})
        send(bootstrap, name, numbered(3))
        archive([name], tmp_path, bootstrap=bootstrap, spark=spark)

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        begin = restoring.begin
        monkeypatch.setattr(restoring, "begin", lambda *given: killed(begin(*given)))
        with pytest.raises(KeyboardInterrupt):
            restore(tmp_path, bootstrap=bootstrap, rename={name: copy}, apply=True, spark=spark)
        monkeypatch.undo()
        assert restore(tmp_path, bootstrap=bootstrap, rename={name: copy}, apply=True, spark=spark).written == 3
        own = {one.name: one.value for one in configs.describe(client, "topic", copy)}
        assert own["message.timestamp.type"] == "LogAppendTime"
