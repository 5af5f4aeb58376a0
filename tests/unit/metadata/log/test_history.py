"""A metadata log as a history: the state at each offset is the fold of the records up to it; files are unchanged."""

from __future__ import annotations

import itertools
import json
import random
import select
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.foreign import require_package
from tests.unit.metadata.written import FOLDER, WrittenCluster, open_log

from klamm._engine.metadata import Image
from klamm._engine.quorum import voters_checkpoint, write_snapshot
from klamm.cli.main import run
from klamm.cli.metadata.metadata_tail import FollowedLog, Tail
from klamm.metadata import History, HistoryError, changes_between, parse_moment
from klamm.metadata.log.location import locate
from klamm.protocol.generated.metadata_records import ConfigRecord, PartitionChangeRecord, TopicRecord, encode
from klamm.raft.log.control_records import KRAFT_VERSION, KRAFT_VOTERS, encode_kraft_version, encode_voters
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VoterSet

CORPUS = Path(__file__).parents[3] / "golden/kafka-4.3.1"


@pytest.fixture(scope="module", params=["clean", "killed"])
def kafka_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    with tarfile.open(CORPUS / f"{request.param}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    [log] = folder.rglob(FOLDER)
    return log.parent


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WrittenCluster]:
    found = WrittenCluster(tmp_path, segment_bytes=2000)
    yield found
    found.native.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_state_of_apache_kafkas_log_is_the_fold_of_its_records(kafka_dir: Path) -> None:
    before = contents(kafka_dir)
    history = History(kafka_dir)
    image = Image()
    for entry in history.records():
        if entry.control is None:
            image = image.apply([entry.value])
        assert history.state_at(entry.offset).image == image, entry.offset
    state = history.state_at()
    assert state.offset == history.end_offset() - 1
    assert (state.quorum.leader_id, state.quorum.leader_epoch) == (1, state.epoch)
    assert [voter.key.id for voter in state.quorum.voters] == [1]
    assert contents(kafka_dir) == before


def test_a_snapshot_is_a_history_of_one_moment(kafka_dir: Path) -> None:
    whole = History(kafka_dir)
    for snapshot in whole.snapshots():
        alone = History(snapshot.path)
        state = alone.state_at()
        assert (state.offset, state.epoch) == (snapshot.end_offset - 1, snapshot.epoch)
        assert state.image == whole.state_at(state.offset).image
        assert {entry.type_name for entry in alone.records()} >= {"SnapshotHeader", "SnapshotFooter", "Topic"}
        assert alone.state_at(alone.offset_of(parse_moment("0s", 1 << 50))).offset == state.offset
        with pytest.raises(HistoryError, match="was cleaned"):
            alone.state_at(state.offset - 1)


def test_a_log_is_read_while_its_writer_has_it_open(tmp_path: Path, cluster: WrittenCluster) -> None:
    history = History(tmp_path)
    position = 0
    names: set[str] = set()
    for at in range(30):
        cluster.add_brokers(at)
        cluster.create_assigned(f"topic-{at}", [at])
        cluster.flush()
        while entries := history.read(position):
            names |= {record.name for entry in entries if isinstance(record := entry.record(), TopicRecord)}
            position = entries[-1].offset + 1
        assert f"topic-{at}" in names
    assert len(names) == 30
    assert len(list((tmp_path / FOLDER).glob("*.log"))) > 3
    assert history.state_at().image == cluster.image


def test_states_at_a_time_or_offset(tmp_path: Path, cluster: WrittenCluster) -> None:
    cluster.add_brokers(1)
    ends = {}
    for at in range(1, 6):
        cluster.now_ms = 1_000_000 + at * 10_000
        cluster.create_assigned(f"topic-{at}", [1])
        ends[at] = cluster.native.end_offset - 1
    cluster.flush()
    history = History(tmp_path)
    assert history.offset_of(parse_moment("1970-01-01T00:17:10+00:00", 0)) == ends[3]
    assert history.offset_of(parse_moment("1970-01-01T00:17:09.999Z", 0)) == ends[2]
    assert (
        history.offset_of(parse_moment("15s", 1_050_000))
        == history.offset_of(parse_moment("15s ago", 1_050_000))
        == ends[3]
    )
    assert history.offset_of("end") == ends[5]
    assert history.offset_of("end-1") == ends[5] - 1
    assert history.offset_of("7") == 7
    with pytest.raises(HistoryError, match=f"offset 999 does not exist yet: the last of .* is {ends[5]}"):
        history.state_at("999")
    with pytest.raises(HistoryError, match="the first record is of"):
        history.state_at(parse_moment("1969-12-31T00:00:00Z", 0))
    with pytest.raises(HistoryError, match="'yesterday' is no moment"):
        history.state_at("yesterday")


def test_a_cleaned_offset_is_an_error_with_the_earliest_one(tmp_path: Path, cluster: WrittenCluster) -> None:
    cluster.add_brokers(*range(20))
    end = cluster.native.end_offset
    path = cluster.native.snapshot_path(end, 1)
    write_snapshot(path, cluster.image, epoch=1, last_contained_log_timestamp_ms=cluster.now_ms, now_ms=0)
    cluster.native.snapshot_finished(end, 1)
    cluster.now_ms += 5000
    cluster.create_assigned("orders", [1, 2])
    assert cluster.native.delete_before(end, 1, 0)
    cluster.flush()
    history = History(tmp_path)
    assert (history.start_offset() or 0) > 0
    assert history.earliest_state() == end - 1
    assert history.state_at(end - 1).image.topic_names() == []
    assert history.state_at().image == cluster.image
    assert history.offset_of(parse_moment("1s", cluster.now_ms)) == end - 1
    with pytest.raises(HistoryError, match=rf"offset 3 was cleaned: the earliest offset is {end - 1}, the snap"):
        history.state_at(3)
    with pytest.raises(HistoryError, match=r"the log has nothing of .*: the earliest is the snapshot"):
        history.state_at(parse_moment("1h", cluster.now_ms))
    with pytest.raises(HistoryError, match="offset 0 was cleaned"):
        history.read(0)


def test_voters_and_kraft_version_come_from_the_log_and_from_snapshots(tmp_path: Path) -> None:
    voters = VoterSet.of(Voter(ReplicaKey(one, bytes([one]) * 16), (Endpoint("C", "h", one),)) for one in (1, 2))
    log = open_log(tmp_path)
    log.append_control([(KRAFT_VERSION, encode_kraft_version(1)), (KRAFT_VOTERS, encode_voters(voters))], 1, 0)
    log.read(0, 1)
    state = History(tmp_path).state_at()
    assert (state.quorum.kraft_version, state.quorum.voters) == (1, voters.voters)
    assert History(tmp_path).state_at(0).quorum.voters == ()
    log.close()
    folder = tmp_path / "other" / FOLDER
    folder.mkdir(parents=True)
    first = voters_checkpoint(1, [(5, b"d" * 16, "C", "host", 9093)], 0)
    (folder / "00000000000000000000-0000000000.checkpoint").write_bytes(first)
    state = History(folder).state_at()
    assert (state.offset, state.quorum.kraft_version) == (-1, 1)
    assert [voter.key for voter in state.quorum.voters] == [ReplicaKey(5, b"d" * 16)]


def test_log_locations(tmp_path: Path, kafka_dir: Path) -> None:
    found = locate(kafka_dir)
    assert found == locate(kafka_dir / FOLDER)
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs=/nowhere,/else\nmetadata.log.dir={kafka_dir}\nssl.keystore.password=x\n")
    assert locate(file) == found
    file.write_text(f"log.dirs={kafka_dir},/else\n")
    assert locate(file) == found
    for path, text in (
        (tmp_path / "absent", "does not exist: name a node's log directory"),
        (tmp_path, "holds no metadata log"),
        (tmp_path / "absent.checkpoint", "does not exist"),
    ):
        with pytest.raises(HistoryError, match=text):
            locate(path)


def test_segments_alone_are_a_metadata_log_by_the_name_of_their_folder(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append([encode(ConfigRecord(resource_type=2, resource_name="t", name="k", value="v"), 0)], 1, 0)
    log.close()
    [segment] = (tmp_path / FOLDER).glob("*.log")
    for name in (f"copied/{FOLDER}", "greetings-0"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / segment.name).write_bytes(segment.read_bytes())
    copied = tmp_path / "copied" / FOLDER
    assert [entry.offset for entry in History(copied).records()] == [0]
    with pytest.raises(HistoryError, match="holds no metadata log"):
        locate(tmp_path / "greetings-0")


def test_a_torn_end_is_named_and_damage_before_it_is_an_error(tmp_path: Path, cluster: WrittenCluster) -> None:
    cluster.add_brokers(1)
    cluster.flush()
    segment = tmp_path / FOLDER / "00000000000000000000.log"
    whole = segment.read_bytes()
    end = History(tmp_path).end_offset()
    segment.write_bytes(whole[:-7])
    history = History(tmp_path)
    assert history.end_offset() < end
    assert "ends at byte" in (history.torn_end() or "")
    assert history.state_at().offset == history.end_offset() - 1
    snapshot = tmp_path / FOLDER / f"{9:020}-{1:010}.checkpoint"
    snapshot.write_bytes(b"no snapshot")
    with pytest.raises(HistoryError, match=snapshot.name):
        History(snapshot).state_at()


def test_a_difference_is_described(tmp_path: Path, cluster: WrittenCluster) -> None:
    cluster.add_brokers(1, 2)
    topic_id = cluster.create_assigned("orders", [1, 2], retention_ms="7")
    cluster.create_assigned("old", [1])
    older = cluster.native.end_offset - 1
    cluster.add_brokers(3)
    cluster.create_assigned("new", [2], [3])
    cluster.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=2, isr=[2]))
    cluster.write(
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="8"),
        ConfigRecord(resource_type=4, resource_name="1", name="ssl.keystore.password", value="secret"),
    )
    cluster.flush()
    history = History(tmp_path)
    changes = changes_between(history.state_at(older), history.state_at())
    found = {(one.kind, one.name): one.text for one in changes}
    assert found["topic", "new"] == "created, with 2 partitions"
    assert found["partition", "orders-0"].startswith("leader 1 -> 2, leader epoch 0 -> 1")
    assert "isr [1,2] -> [2]" in found["partition", "orders-0"]
    assert found["config", "topic orders"] == "retention.ms: 7 -> 8"
    assert found["config", "broker 1"] == "ssl.keystore.password: - -> (hidden)"
    assert found["broker", "3"].startswith("registered, active")
    assert changes_between(history.state_at(), history.state_at()) == []


def test_arrow_tables(tmp_path: Path, cluster: WrittenCluster) -> None:
    require_package("pyarrow")
    from klamm.metadata import partitions_table, records_table

    cluster.lead(1)
    cluster.add_brokers(1, 2)
    cluster.create_assigned("orders", [1, 2], [2, 1])
    cluster.flush()
    history = History(tmp_path)
    records = records_table(history)
    assert records.num_rows == history.end_offset()
    rows = records.to_pylist()
    assert [row["offset"] for row in rows] == list(range(history.end_offset()))
    assert [row["type"] for row in rows if row["control"]] == ["LeaderChange"]
    assert [row["partition"] for row in rows if row["type"] == "Partition"] == [0, 1]
    assert [json.loads(row["fields"])["leader"] for row in rows if row["type"] == "Partition"] == [1, 2]
    assert records_table(history, 2, 5).column("offset").to_pylist() == [2, 3, 4]
    partitions = partitions_table(history)
    assert partitions.schema.metadata == {b"offset": str(history.end_offset() - 1).encode()}
    assert [(row["topic"], row["partition"], row["leader"], row["isr"]) for row in partitions.to_pylist()] == [
        ("orders", 0, 1, [1, 2]),
        ("orders", 1, 2, [2, 1]),
    ]
    assert partitions_table(history, 3).num_rows == 0


def test_the_commands(kafka_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", str(kafka_dir)]
    before = contents(kafka_dir)
    assert run(["metadata", "tail", "-n", "5", "--json", *data]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 5
    assert all(line["type"] != "NoOp" for line in lines)
    assert run(["metadata", "tail", "--from", "0", "--type", "topicrecord", *data]) == 0
    out = capsys.readouterr().out
    assert "topic __consumer_offsets created" in out
    assert run(["metadata", "at", "end", "--topic", "empty", *data]) == 0
    assert "leader 1 in epoch" in (out := capsys.readouterr().out)
    assert "codec-none" not in out.partition("CONFIG")[0]
    assert run(["metadata", "at", "--json", *data]) == 0
    assert "empty" in {topic["name"] for topic in json.loads(capsys.readouterr().out)["topics"]}
    assert run(["metadata", "diff", "20", "end", "--json", *data]) == 0
    assert {"topic", "config"} <= {change["kind"] for change in json.loads(capsys.readouterr().out)["changes"]}
    assert run(["metadata", "why", "empty-0", *data]) == 0
    assert "created: leader 1" in (out := capsys.readouterr().out)
    now = "no leader: only 1 may lead" if kafka_dir.name == "clean" else "broker 1 leads it in epoch 0"
    assert f"empty-0: {now}" in out
    assert run(["metadata", "why", "empty-9", *data]) == 1
    assert "there is no partition empty-9" in capsys.readouterr().err
    assert run(["metadata", "tail", "--type", "nonsense", *data]) == 1
    assert "there is no record type nonsense: use one of AbortTransaction," in capsys.readouterr().err
    assert contents(kafka_dir) == before


def test_a_log_is_followed_while_it_grows_and_is_truncated(tmp_path: Path, cluster: WrittenCluster) -> None:
    cluster.add_brokers(1)
    cluster.create_assigned("orders", [1])
    cluster.flush()
    tail = Tail(History(tmp_path), None)
    assert [line.text for line in tail.last(2)][-1] == "partition orders-0: leader 1, replicas [1]"
    followed = FollowedLog(tail)
    assert list(followed.more()) == []
    end = cluster.native.end_offset
    topic_id = cluster.image.topic_id("orders") or b""
    cluster.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=-1))
    cluster.flush()
    [line] = followed.more()
    assert (line.offset, line.text) == (end, "partition orders-0: leader 1 -> none")
    assert f"{end}" in line.line()
    assert line.fields()["fields"]["partition_id"] == 0
    cluster.native.truncate_to(end - 2, 0)
    cut = cluster.native.end_offset
    assert cut < end
    assert list(followed.more()) == []
    [note] = followed.notes()
    assert note.startswith(f"the log was truncated at offset {cut}: records printed from there on were never committed")
    assert followed.notes() == []
    cluster.native.append([encode(TopicRecord(name="new", topic_id=b"n" * 16), 0)], 2, 0)
    cluster.flush()
    assert ["topic new created" in line.text for line in followed.more()] == [True]


def named(number: int) -> bytes:
    return encode(TopicRecord(name=f"topic-{number}", topic_id=number.to_bytes(16, "big")), 0)


def test_a_log_truncated_and_grown_past_the_read_position_is_read_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(10):
        log.append([named(number)], 1 + number // 4, number)
    log.read(9, 1)
    tail = Tail(History(tmp_path), None)
    assert len(tail.last(5)) == 5
    followed = FollowedLog(tail)
    log.truncate_to(7, 0)
    for number in range(70, 76):
        log.append([named(number)], 4, number)
    log.read(12, 1)
    assert [(line.offset, line.text.split()[1]) for line in followed.more()] == [
        (offset, f"topic-{offset + 63}") for offset in range(7, 13)
    ]
    [note] = followed.notes()
    assert note.startswith("the log was truncated at offset 7: ")
    assert list(followed.more()) == []
    assert followed.notes() == []


@pytest.mark.parametrize("seed", range(20))
def test_after_any_truncations_the_followed_records_are_the_log(tmp_path: Path, seed: int) -> None:
    rng, log, epoch, numbers = random.Random(seed), open_log(tmp_path), 1, itertools.count(1)
    shown: list[str] = []
    ends = [1]
    log.append([named(0)], epoch, 0)
    log.read(0, 1)
    followed = FollowedLog(Tail(History(tmp_path), None))

    def look() -> None:
        for line in followed.more():
            shown[line.offset :] = [line.text.split()[1]]
        for note in followed.notes():
            cut = int(note.partition("truncated at offset ")[2].partition(":")[0])
            assert cut <= len(shown)
        # Truncated records are invalid from the notice on, and may not have been replaced yet.
        entries = list(History(tmp_path).records())  # in the files: the end of the log may still be in memory
        del shown[len(entries) :]
        assert shown == [entry.record().name for entry in entries]

    for _ in range(60):
        match rng.randrange(4):
            case 0:
                del ends[rng.randint(max(0, len(ends) - 3), len(ends)) :]  # never within a batch
                log.truncate_to(ends[-1] if ends else 0, 0)
                epoch += 1
            case 1 | 2:
                log.append([named(next(numbers)) for _ in range(rng.randint(1, 3))], epoch, 0)
                ends.append(log.end_offset)
                log.read(log.end_offset - 1, 1)
            case 3:
                look()
    look()


def test_a_concurrent_reader_gets_every_record_once_and_complete(tmp_path: Path) -> None:
    """The flusher writes, preallocates zeroes and rolls segments in its own thread, as fast as it can."""
    count, log = 2000, open_log(tmp_path, segment_bytes=20_000)
    records = [
        encode(TopicRecord(name=f"topic-{at}", topic_id=at.to_bytes(16, "big")), 0) for at in range(1000, 1000 + count)
    ]

    def write() -> None:
        for at, record in enumerate(records):
            log.append([record], 1 + at // 500, at)
            log.start_flush()
            if at % 50 == 0:
                assert select.select([log.flush_fd], [], [], 30)[0]
                assert {error for _, error in log.take_flushed()} == {None}

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        history, seen, deadline = History(tmp_path), [], time.monotonic() + 60
        while len(seen) < count and time.monotonic() < deadline:
            found = history.read(len(seen))
            assert [entry.offset for entry in found] == list(range(len(seen), len(seen) + len(found)))
            assert history.end_offset() >= len(seen) + len(found)
            seen += [entry.value for entry in found]
        writing.result()
    assert seen == records
    log.close()


def test_unknown_records_are_passed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = open_log(tmp_path)
    log.append([encode(TopicRecord(name="orders", topic_id=b"t" * 16), 0), b"\x01\x63\x00\x00"], 1, 0)
    log.close()
    assert run(["metadata", "tail", "--all", "--data", str(tmp_path)]) == 0
    assert "cannot be read: there is no metadata record 99" in capsys.readouterr().out
    assert run(["metadata", "tail", "--all", "--json", "--data", str(tmp_path)]) == 0
    unknown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert unknown["fields"]["value"] == "01630000"
    assert "there is no metadata record 99" in unknown["fields"]["error"]
    assert run(["metadata", "at", "--data", str(tmp_path)]) == 1
    assert "there is no metadata record 99" in capsys.readouterr().err
    assert run(["metadata", "at", "0", "--data", str(tmp_path)]) == 0
