"""`klamm audit` on a log whose results are known by reasoning, and on logs that klamm and Apache Kafka wrote."""

from __future__ import annotations

import itertools
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import klamm
from klamm._engine.metadata import Image
from klamm._engine.quorum import write_snapshot
from klamm.cli.main import run
from klamm.metadata import History
from klamm.metadata.state import partition_fields
from klamm.pipelines.audit import QUESTIONS, Audit, open_audit, write_report
from klamm.pipelines.audit.plan import plan
from klamm.pipelines.errors import PipelineError
from klamm.protocol.generated.metadata_records import FeatureLevelRecord, encode_at
from klamm.protocol.uuids import uuid_text
from tests.support.metadata_stories import FOLDER, write_story

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOLDEN = Path(__file__).parents[1] / "golden/kafka-4.3.1/clean.tar.xz"
SNAPSHOT_END = 17


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audit]:
    folder = tmp_path_factory.mktemp("story")
    write_story(folder)
    with open_audit(folder, spark=spark) as audit:
        yield audit


@pytest.fixture(scope="module")
def from_snapshot(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audit]:
    """The same log, whose beginning has been replaced by a snapshot."""
    folder = tmp_path_factory.mktemp("snapshot")
    write_story(folder, segment_bytes=600)
    level = encode_at(FeatureLevelRecord(name="metadata.version", feature_level=30), 30)
    image = History(folder).state_at(SNAPSHOT_END - 1).image.apply([level])
    name = f"{SNAPSHOT_END:020}-0000000001.checkpoint"
    write_snapshot(folder / FOLDER / name, image, epoch=1, last_contained_log_timestamp_ms=11_000, now_ms=99_000)
    bases = sorted((folder / FOLDER).glob("*.log"))
    for file, following in itertools.pairwise(bases):
        if int(following.stem) <= SNAPSHOT_END:
            file.unlink()
    assert int(min((folder / FOLDER).glob("*.log")).stem) > 0
    with open_audit(folder, spark=spark) as audit:
        yield audit


def rows(answer: DataFrame, columns: str, order: str = "offset") -> list[tuple[Any, ...]]:
    """Sorted rows with times in ms."""
    from pyspark.sql import functions as f

    times = {field.name for field in answer.schema if field.dataType.typeName() == "timestamp"}
    shown = [f.unix_millis(name).alias(name) if name in times else f.col(name) for name in columns.split()]
    return [tuple(row) for row in answer.orderBy(*order.split()).select(*shown).collect()]


def test_how_leadership_moved(story: Audit) -> None:
    columns = "topic partition offset timestamp from_leader to_leader leader_epoch_before leader_epoch kind"
    found = rows(story.leadership(), f"{columns} is_preferred is_unclean")
    assert found == [
        ("orders", 1, 14, 10_000, 2, 3, 0, 1, "moved", False, False),
        ("orders", 1, 15, 11_000, 3, None, 1, 2, "lost", False, False),
        ("orders", 1, 18, 15_000, None, 2, 2, 3, "regained", True, True),
        ("<other>", 0, 34, 24_000, 1, 3, 0, 1, "moved", False, False),
        ("<other>", 0, 35, 25_000, 3, None, 1, 2, "lost", False, False),
        ("<other>", 0, 36, 26_000, None, 2, 2, 3, "regained", True, False),
    ]


def test_what_was_under_replicated_and_for_how_long(story: Audit) -> None:
    columns = "topic partition from_offset from_time to_offset to_time ended duration_ms"
    found = rows(story.under_replicated(), f"{columns} replicas isr_min missing", "from_offset")
    assert found == [
        ("orders", 0, 11, 6000, 13, 9000, "in sync", 3000, 3, 1, [2, 3]),
        ("orders", 1, 14, 10_000, 29, 20_000, "deleted", 10_000, 3, 1, [1, 2, 3]),
        ("<other>", 0, 35, 25_000, None, None, None, 5000, 2, 0, [2, 3]),
    ]
    found = rows(story.leaderless(), f"{columns} isr", "from_offset")
    assert found == [
        ("orders", 1, 15, 11_000, 18, 15_000, "elected", 4000, [3]),
        ("<other>", 0, 35, 25_000, 36, 26_000, "elected", 1000, []),
    ]


def test_who_left_and_entered_isrs(story: Audit) -> None:
    assert rows(story.isr_changes(), "offset partition broker change", "offset broker") == [
        (11, 0, 3, "left"),
        (12, 0, 2, "left"),
        (13, 0, 2, "entered"),
        (13, 0, 3, "entered"),
        (14, 1, 2, "left"),
        (15, 1, 1, "left"),
        (18, 1, 2, "entered"),
        (18, 1, 3, "left"),
        (34, 0, 1, "removed"),
        (34, 0, 3, "entered"),
        (35, 0, 2, "left"),
        (35, 0, 3, "left"),
        (36, 0, 2, "entered"),
    ]
    columns = "broker shrinks expands removed partitions first_time last_time"
    assert rows(story.isr_churn(), columns, "broker") == [
        (1, 1, 0, 1, 2, 11_000, 24_000),
        (2, 3, 3, 0, 3, 7000, 26_000),
        (3, 3, 2, 0, 3, 6000, 25_000),
    ]


def test_unclean_elections(story: Audit) -> None:
    columns = "topic partition offset from_leader to_leader leader_epoch isr_before elr_before is_recovering"
    found = rows(story.unclean_elections(), f"{columns} recovered_offset recovered_time")
    assert found == [("orders", 1, 18, None, 2, 3, [3], [], True, 19, 16_000)]


def test_configs_before_and_after(story: Audit) -> None:
    columns = "offset resource_type resource_name name before after change"
    password, hidden = ("broker", "", "ssl.keystore.password"), "(hidden)"
    assert rows(story.config_changes(), columns) == [
        (10, "topic", "orders", "retention.ms", None, "100", "set"),
        (20, "topic", "orders", "retention.ms", "100", "200", "changed"),
        (21, *password, None, hidden, "set"),
        (22, *password, hidden, hidden, "replaced"),
        (23, "topic", "orders", "retention.ms", "200", "200", "repeated"),
        (24, "topic", "orders", "cleanup.policy", None, "compact", "set"),
        (25, "topic", "orders", "cleanup.policy", "compact", None, "removed"),
        (29, "topic", "orders", "retention.ms", "200", None, "deleted"),
    ]


def test_elections_of_the_quorum(story: Audit) -> None:
    columns = "epoch leader leader_before voters granting_voters offset timestamp"
    found = rows(story.elections(), f"{columns} epochs_between last_offset last_time length_ms")
    assert found == [
        (1, 1, None, [1, 2, 3], [1, 3], 0, 1000, None, None, None, None),
        (3, 2, 1, [1, 2, 3], [2, 3], 17, 14_000, 1, 16, 11_000, 3000),
    ]


def test_when_brokers_were_fenced(story: Audit) -> None:
    columns = "broker state because from_offset from_time to_offset duration_ms broker_epoch"
    assert rows(story.broker_states(), columns, "broker from_offset") == [
        (1, "fenced", "registered", 1, 2000, 4, 1000, 1),
        (1, "active", "unfenced", 4, 3000, 30, 18_000, 1),
        (1, "shutting down", "controlled shutdown", 30, 21_000, None, 9000, 1),
        (2, "fenced", "registered", 2, 2000, 5, 1000, 2),
        (2, "active", "unfenced", 5, 3000, None, 27_000, 2),
        (3, "fenced", "registered", 3, 2000, 6, 1000, 3),
        (3, "active", "unfenced", 6, 3000, 16, 8000, 3),
        (3, "fenced", "fenced", 16, 11_000, 31, 11_000, 3),
        (3, "unregistered", "unregistered", 31, 22_000, None, 8000, 3),
    ]


def states(audit: Audit) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Each partition's last row of its history."""
    lists = ("replicas", "isr", "elr", "last_known_elr", "adding_replicas", "removing_replicas")
    columns = ("topic", "topic_id", "partition", "leader", "leader_epoch", "partition_epoch", "leader_recovery_state")
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in audit.partition_history().orderBy("offset").select(*columns, *lists, "event").collect():
        fields = row.asDict()
        key = fields["topic"], fields.pop("topic_id"), fields["partition"]
        fields["leader"] = -1 if fields["leader"] is None else fields["leader"]
        found[key] = fields
        if fields.pop("event") == "deleted":
            del found[key]
    return {key: {name: fields[name] for name in fields if name != "topic"} for key, fields in found.items()}


def states_of_image(image: Image) -> dict[tuple[str, str, int], dict[str, Any]]:
    found = {}
    for name in image.topic_names():
        topic_id = image.topic_id(name) or b""
        for one in image.partitions(topic_id):
            fields = partition_fields(one)
            del fields["directories"]
            found[name, uuid_text(topic_id), one.index] = fields
    return found


def test_the_last_states_are_those_of_the_image(story: Audit) -> None:
    found = states(story)
    image = states_of_image(History(story.plan.path.parent).state_at().image)
    # The image counts a cleared ELR as Apache Kafka does.
    assert found == image
    assert [fields["partition_epoch"] for fields in found.values()] == [4]


def test_a_log_that_begins_with_a_snapshot(from_snapshot: Audit) -> None:
    assert from_snapshot.plan.base is not None
    columns = "topic partition from_offset from_time to_offset duration_ms is_from_snapshot"
    assert rows(from_snapshot.under_replicated(), columns, "from_offset") == [
        ("orders", 1, 16, 11_000, 29, 9000, True),
        ("<other>", 0, 35, 25_000, None, 5000, False),
    ]
    offsets = [offset for (offset,) in rows(from_snapshot.leadership(), "offset")]
    assert offsets == [18, 34, 35, 36]
    [first, *_] = rows(from_snapshot.config_changes(), "offset before after change")
    assert first == (20, "100", "200", "changed")
    found = rows(from_snapshot.broker_states(), "broker state because from_offset", "broker from_offset")
    assert found[:2] == [(1, "active", "snapshot", 16), (1, "shutting down", "controlled shutdown", 30)]
    assert (3, "fenced", "snapshot", 16) in found
    assert states(from_snapshot) == states_of_image(History(from_snapshot.plan.path.parent).state_at().image)


def test_tables_and_views(story: Audit) -> None:
    views = story.create_views()
    assert {"records", "PartitionChangeRecord", "LeaderChangeMessage", *QUESTIONS} <= set(views)
    assert story.create_views("select * from `Leadership` l join topicrecord using (topic_id)") == [
        "TopicRecord",
        "leadership",
    ]
    counts = dict(map(tuple, story.spark.sql("select type, count(*) from records group by type").collect()))
    assert sum(counts.values()) == 39
    assert counts["PartitionChangeRecord"] == 11
    query = "select offset, leader, isr from PartitionChangeRecord where leader >= 0 order by offset limit 2"
    assert list(map(tuple, story.spark.sql(query).collect())) == [(14, 3, [3, 1]), (18, 2, [2])]
    assert story.table("leaderchange").select("leader_id").orderBy("offset").collect()[1][0] == 2
    fields = story.records().where("offset = 13").select("fields").collect()[0][0]
    assert json.loads(fields)["isr"] == [1, 2, 3]
    with pytest.raises(PipelineError, match="no question 'why': use one of leadership"):
        story.ask("why")


def test_a_report_is_one_file(story: Audit, tmp_path: Path) -> None:
    text = write_report(story, tmp_path / "report.html", rows=2).read_text()
    assert "&lt;other&gt;" in text
    assert "<other>" not in text
    assert "sesame" not in text
    assert "The first 2 of 9, the newest first." in text, "of broker states"
    assert text.count('role="img"') == 6
    assert text.count("<section") == text.count("</section>") == 11
    for word in ("<script", "http://", "https://", "@import", "<link", "<img"):
        assert word not in text
    assert "prefers-color-scheme: dark" in text
    assert list(tmp_path.iterdir()) == [tmp_path / "report.html"]
    with pytest.raises(PipelineError, match="nowhere"):
        write_report(story, tmp_path / "nowhere" / "report.html")


def test_apache_kafkas_directory(spark: SparkSession, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    [log] = tmp_path.rglob(FOLDER)
    history = History(log)
    with open_audit(log.parent, spark=spark) as audit:
        assert states(audit) == states_of_image(history.state_at().image)
        entries = list(history.records())
        leaders = [entry.epoch for entry in entries if entry.type_name == "LeaderChange"]
        assert [epoch for (epoch,) in rows(audit.elections(), "epoch")] == leaders
        said = {
            entry.offset
            for entry in entries
            if entry.type_name == "PartitionChange" and entry.record().leader_recovery_state == 1  # type: ignore[union-attr]
        }
        assert said, "the node was stopped uncleanly"
        assert rows(audit.unclean_elections(), "offset") == [], "each was the only replica, and came back intact"
        is_open = rows(audit.broker_states().where("to_offset is null"), "broker state", "broker")
        assert [broker for broker, _ in is_open] == [1]


def test_a_live_cluster(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    with klamm.Cluster(controllers=3) as cluster:
        cluster.create_topic("orders", partitions=2)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        entry = ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)
        killed = next(one for one in cluster.controllers if one.is_active)
        killed.kill()
        cluster.create_topic("after")
        left = next(one for one in cluster.controllers if one.is_running)
        with open_audit(bootstrap_controller=left.address, spark=spark) as audit:
            assert states(audit) == states_of_image(History(audit.plan.path.parent).state_at().image)
            assert {name for name, *_ in states(audit)} == {"orders", "after"}
            found = rows(audit.config_changes(), "resource_name name before after")
            assert [one for one in found if one[0] == "orders"] == [("orders", "retention.ms", None, "1234")]
            elections = rows(audit.elections(), "epoch leader leader_before length_ms")
            assert len(elections) >= 2
            assert killed.id in {leader for _, leader, *_ in elections[:-1]}
            assert elections[-1][1] != killed.id
            assert elections[-1][3] is not None
        assert run(["audit", "config_changes", "-C", left.address, "--json"]) == 0
        fields = json.loads(capsys.readouterr().out)
        assert fields["answers"]["config_changes"]["rows"][0]["after"] == "1234"
        assert fields["log"]["origin"] == f"the controllers at {left.address}"


def test_the_command(story: Audit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(story.plan.path.parent)
    assert run(["audit", "elections", "unclean_elections", "--data", data, "--html", str(tmp_path / "r.html")]) == 0
    shown = capsys.readouterr()
    assert "Elections of the quorum: 2" in shown.out
    assert "Unclean elections: 1" in shown.out
    assert str(tmp_path / "r.html") in shown.err
    assert run(["audit", "--data", data, "--sql", "select max(offset) as last from records", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"last": 38}]
    assert run(["audit", "--data", data, "--sql", "select nothing from nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_damage_is_reported_and_records_before_it_are_audited(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_story(tmp_path)
    [file] = (tmp_path / FOLDER).glob("*.log")
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    found = plan(tmp_path)
    assert found.damage
    assert run(["audit", "elections", "--data", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "Elections of the quorum: 2" in shown.out
    assert str(file) in shown.err
    assert "Traceback" not in shown.err
