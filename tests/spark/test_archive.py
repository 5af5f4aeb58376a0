"""`klamm archive` and `klamm restore`: complete results despite kills, and clear errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import klamm
from klamm.admin import configs, groups, topics
from klamm.admin.client import Client
from klamm.cli.main import run
from klamm.client import KafkaClient
from klamm.pipelines.archive import archive, read_mapping, read_table, restore, verify
from klamm.pipelines.archive.store import COMMITS, read_manifest
from klamm.pipelines.errors import PipelineError
from tests.spark.archives import assert_identical, fill
from tests.spark.conftest import REPOSITORY, python_of_workers
from tests.spark.producing import numbered, send
from tests.support.foreign import give_up
from tests.support.full_disk import can_mount, small_disk
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOUND_S = 400


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    with klamm.Cluster() as running:
        yield running.bootstrap_servers


@pytest.fixture
def client(bootstrap: str) -> Iterator[KafkaClient]:
    with KafkaClient(bootstrap) as found:
        yield found


class Killed:
    """A command that is killed with its JVM as soon as a condition holds."""

    def __init__(self, folder: Path) -> None:
        self._python = str(python_of_workers(folder))

    def __call__(self, *command: str, when: Callable[[], bool]) -> None:
        process = subprocess.Popen(
            [self._python, "-m", "klamm", *command, "--master", "local[2]"],
            cwd=REPOSITORY,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": self._python},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_until(lambda: when() or process.poll() is not None, bound_s=BOUND_S)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            said = process.communicate()[0]
        # 0: this process was delayed for so long that the command had finished
        assert process.returncode in (-signal.SIGKILL, 0), said.decode()


@pytest.mark.slow
def test_a_killed_archive_and_a_killed_restore_are_completed(
    spark: SparkSession, elsewhere: str, topic: Callable[..., str], client: KafkaClient, tmp_path: Path
) -> None:
    name, kept = topic(3), tmp_path / "kept"
    bootstrap: str = client.__reduce__()[1][0]
    killed = Killed(tmp_path)
    sizes = {0: 9000, 1: 8000}
    for partition, count in sizes.items():
        fill(client, name, partition, count)
    client.flush()
    # The new offsets differ from the old ones.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(name, 0, 1000)
    admin.delete_records([place])[place].result(30)
    with Client(bootstrap) as old:
        groups.commit(old, f"group-{name}", {(name, 0): 4000, (name, 1): 8000, (name, 2): 0})

    def commits() -> int:
        return len(list((kept / COMMITS).glob("*.json")))

    killed(
        "archive", name, "--to", str(kept), "-b", bootstrap, "--records-per-task", "100", when=lambda: commits() >= 3
    )
    here = read_manifest(kept)
    assert 0 < here.records(name) <= 16_000
    # The tables as a reader sees them; the last commit may be incomplete.
    seen = {str(file.relative_to(kept)) for file in kept.glob("topic=*/date=*/[!.]*")}
    assert seen
    assert seen <= {file.path for file in here.files()}

    added = archive([name], kept, bootstrap=bootstrap, groups=True, spark=spark)
    assert added.records == 16_000 - here.records(name)
    assert archive([name], kept, bootstrap=bootstrap, spark=spark).records == 0
    assert verify(kept, spark=spark).records == 16_000
    table = read_table(kept, spark)
    assert table.select("partition", "offset").distinct().count() == table.count() == 16_000

    with KafkaClient(elsewhere) as target:

        def ends() -> int:
            return sum(target.offsets(name, {0: -1, 1: -1}).values()) if name in target.topics() else 0

        # One request per record, so that it can be killed between them.
        slowly = ("--client", "batch.size=1", "--client", "linger.ms=0")
        killed("restore", str(kept), "-b", elsewhere, "--apply", *slowly, when=lambda: ends() > 100)
        done = restore(kept, bootstrap=elsewhere, apply=True, groups=True, compare=True, spark=spark)
        assert done.topics[0].known
        assert done.written < 16_000
        assert ends() == done.records == 16_000
        for partition in range(3):
            compared = assert_identical(client, target, name, name, partition=partition)
            assert compared == {0: 8000, 1: 8000}.get(partition, 0)

    mapping = read_mapping(done.state)[name]
    assert [mapping.translate(0, offset) for offset in (0, 1000, 4000, 9000)] == [0, 0, 3000, 8000]
    with Client(elsewhere) as new:
        assert groups.committed_offsets(new, f"group-{name}") == {(name, 0): 3000, (name, 1): 8000, (name, 2): 0}
        (made,) = topics.topics(new, [name])
        assert len(made.partitions) == 3
        assert {one.name: one.value for one in configs.describe(new, "topic", name)}["retention.ms"] == "-1"

    # Records that are archived later are restored after the existing ones.
    fill(client, name, 2, 10)
    client.flush()
    archive([name], kept, bootstrap=bootstrap, spark=spark)
    assert restore(kept, bootstrap=elsewhere, apply=True, spark=spark).written == 10


def test_the_commands(
    spark: SparkSession,
    bootstrap: str,
    topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, kept, copy = topic(2), str(tmp_path / "kept"), f"copy-{os.getpid()}"
    send(bootstrap, name, numbered(30))

    def json_of(*command: str) -> dict[str, object]:
        assert run([*command, "--json"]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    added = json_of("archive", "--pattern", name, "--to", kept, "-b", bootstrap, "--verify")
    assert (added["topics"], added["records"]) == ([name], 30)
    assert json_of("archive", "--verify", "--to", kept)["verified"] == added["verified"]

    rename = ("--rename", f"{name}={copy}")
    planned = json_of("restore", kept, name, *rename, "-b", bootstrap)
    assert (planned["applied"], planned["written"]) == (False, 0)
    with KafkaClient(bootstrap) as client:
        assert copy not in client.topics()
        done = json_of("restore", kept, *rename, "--apply", "--compare", "-b", bootstrap)
        assert (done["applied"], done["written"]) == (True, 30)
        assert assert_identical(client, client, name, copy, partition=0) == 30

    assert run(["restore", kept, "-b", bootstrap]) == 1
    assert f"error: topic '{name}' is not empty: partition 0 has offsets [0, 30)" in capsys.readouterr().err
    assert run(["restore", kept, *rename, "-b", bootstrap]) == 0
    assert "nothing was changed: --apply does it" in capsys.readouterr().out


def test_a_damaged_file_is_named_and_not_restored(
    spark: SparkSession, bootstrap: str, elsewhere: str, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    send(bootstrap, name, numbered(100))
    archive([name], tmp_path, bootstrap=bootstrap, spark=spark, compression="none")
    (file,) = tmp_path.glob("topic=*/date=*/*.parquet")
    whole = file.read_bytes()
    for damaged in (whole[:-100], whole.replace(b"77", b"78", 1), b""):
        file.write_bytes(damaged)
        for action in (
            lambda: verify(tmp_path, spark=spark),
            lambda: restore(tmp_path, bootstrap=elsewhere, apply=True, spark=spark),
        ):
            with pytest.raises(PipelineError, match=f"{file.name}' is damaged"):
                action()
    with KafkaClient(elsewhere) as client:
        assert name not in client.topics()


def test_changes_of_a_topic_since_the_archive_are_reported(
    spark: SparkSession, bootstrap: str, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    send(bootstrap, name, numbered(10))
    archive([name], tmp_path, bootstrap=bootstrap, spark=spark)
    send(bootstrap, name, numbered(10))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(name, 0, 15)
    admin.delete_records([place])[place].result(30)
    with pytest.raises(PipelineError, match="begins with offset 15, and the archive ends with 10"):
        archive([name], tmp_path, bootstrap=bootstrap, spark=spark)
    assert archive([name], tmp_path, bootstrap=bootstrap, allow_loss=True, spark=spark).records == 5
    manifest = read_manifest(tmp_path)
    assert [(one.start, one.end, one.lost) for one in manifest.ranges[name, 0]] == [
        (0, 10, False),
        (10, 15, True),
        (15, 20, False),
    ]
    with Client(bootstrap) as client:
        topics.delete(client, [name])
        wait_until(lambda: name not in {one.name for one in topics.topics(client)}, bound_s=30)
        topics.create(client, [name], partitions=1)
    with pytest.raises(PipelineError, match=f"topic '{name}' was deleted and made again"):
        archive([name], tmp_path, bootstrap=bootstrap, spark=spark)


def test_another_writer_to_a_restored_topic_is_detected(
    spark: SparkSession, bootstrap: str, elsewhere: str, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    send(bootstrap, name, numbered(10))
    archive([name], tmp_path, bootstrap=bootstrap, spark=spark)
    restore(tmp_path, bootstrap=elsewhere, apply=True, spark=spark)
    send(elsewhere, name, numbered(5))
    with pytest.raises(PipelineError, match=rf"{name}-0 has other records than were restored into it"):
        restore(tmp_path, bootstrap=elsewhere, spark=spark)
    send(bootstrap, name, numbered(5, start=10))
    archive([name], tmp_path, bootstrap=bootstrap, spark=spark)
    with pytest.raises(PipelineError, match=rf"{name}-0 has other records than were restored into it"):
        restore(tmp_path, bootstrap=elsewhere, apply=True, spark=spark)


def test_bad_input_is_one_clear_error(bootstrap: str, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic()
    for action, complaint in (
        (lambda: archive(["no-such"], tmp_path, bootstrap=bootstrap), "topic no-such: there is no such topic"),
        (lambda: archive([], tmp_path, bootstrap=bootstrap), "no topic to archive"),
        (lambda: archive([], tmp_path, bootstrap=bootstrap, pattern="("), "is no regular expression"),
        (lambda: archive([], tmp_path, bootstrap=bootstrap, pattern="x"), "'x' matches none of the"),
        (lambda: archive([name], tmp_path, bootstrap="localhost:1"), "cannot connect to localhost:1"),
        (lambda: archive([name], tmp_path, bootstrap=bootstrap, compression="rar"), "compression 'rar' is not known"),
        (lambda: archive([name], tmp_path, bootstrap=bootstrap, client={"no.such": "1"}), "no.such"),
        (lambda: restore(tmp_path / "none", bootstrap=bootstrap), "is no archive"),
    ):
        with pytest.raises(Exception, match=complaint) as caught:
            action()
        assert isinstance(caught.value, klamm.client.ClientError), caught.value
        assert not list(tmp_path.glob("topic=*"))
    archive([name], tmp_path / "kept", bootstrap=bootstrap)
    with pytest.raises(PipelineError, match="has no topic 'other'; there are: " + name):
        restore(tmp_path / "kept", bootstrap=bootstrap, topics=["other"])
    with pytest.raises(PipelineError, match="--rename names topic 'other', which is not restored"):
        restore(tmp_path / "kept", bootstrap=bootstrap, rename={"other": "x"})


def test_a_full_disk_is_reported_and_an_archive_continues(
    spark: SparkSession, bootstrap: str, topic: Callable[..., str], client: KafkaClient, tmp_path: Path
) -> None:
    if not can_mount():
        give_up("nothing can be mounted here")
    name = topic()
    fill(client, name, 0, 2000, bytes_each=1000)
    client.flush()
    with small_disk(tmp_path / "disk", 8) as disk:
        kept = disk.path / "kept"
        kept.mkdir()
        disk.fill()
        with pytest.raises((PipelineError, OSError), match="No space left on device"):
            archive([name], kept, bootstrap=bootstrap, records_per_task=500, spark=spark)
        disk.free()
        archive([name], kept, bootstrap=bootstrap, records_per_task=500, spark=spark)
        assert verify(kept, spark=spark).records == 2000
        send(bootstrap, name, numbered(3))
        disk.fill()
        with pytest.raises((PipelineError, OSError), match="No space left on device"):
            archive([name], kept, bootstrap=bootstrap, spark=spark)
        assert verify(kept, spark=spark).records == 2000
        disk.free()
        assert archive([name], kept, bootstrap=bootstrap, spark=spark).records == 3


def test_names_that_look_like_numbers_and_dates(
    spark: SparkSession, bootstrap: str, client: KafkaClient, tmp_path: Path
) -> None:
    names, kept = ["007", "1e3", "2024-01-01", "9.5_a-B", "null"], tmp_path / "kept"
    with Client(bootstrap) as admin:
        topics.create(admin, names, partitions=1, configs={"retention.ms": "-1"})
    for number, name in enumerate(names):
        fill(client, name, 0, 10 + number)
    client.flush()
    archive(names, kept, bootstrap=bootstrap, spark=spark)
    assert verify(kept, spark=spark).topics == tuple(names)
    found = read_table(kept, spark).groupBy("topic").count().orderBy("topic").collect()
    assert [tuple(row) for row in found] == [(name, 10 + number) for number, name in enumerate(names)]
    restore(kept, bootstrap=bootstrap, rename={name: f"{name}.2" for name in names}, apply=True, spark=spark)
    for number, name in enumerate(names):
        assert assert_identical(client, client, name, f"{name}.2", partition=0) == 10 + number

    archive(names[:1], tmp_path / "one", bootstrap=bootstrap, spark=spark)
    row = read_table(tmp_path / "one", spark).select("topic", "date", "offset").orderBy("offset").first()
    assert row is not None
    assert (row.topic, row.date.isoformat(), row.offset) == ("007", "2023-11-14", 0)
