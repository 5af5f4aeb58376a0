"""The same hostile bytes to klamm and to Apache Kafka 4.3.1: the same responses, or both close the connection.

Each case has its own connection, and sends an ApiVersions after its bytes, to see whether the connection is still open.
Error codes and values are compared; messages are not, because they have our wording. klamm's memory must not grow.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from kafka.record.util import calc_crc32c

from klamm.protocol.errors import ErrorCode
from klamm.protocol.wire.codec import decode_response
from tests.interop.apache_kafka import running
from tests.support.foreign import require
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

ALIVE = struct.pack(">ihhih", 10, 18, 0, 77_777, -1)
RSS_GROWTH_MAX_BYTES = 64 << 20
# klamm accepts batches of up to 128 MiB after decompression; Apache Kafka has no limit.
BOMB_BYTES, TOO_LARGE_BYTES = 100_000_000, 200_000_000
CODECS = {1: gzip_encode, 2: snappy_encode, 3: lz4_encode, 4: zstd_encode}
# The versions that both serve, by key: the first, the last, and the first one with a flexible header.
SERVED = {
    0: (3, 12, 9),
    1: (4, 16, 12),
    2: (1, 10, 6),
    3: (0, 13, 9),
    8: (2, 9, 8),
    9: (1, 9, 6),
    10: (0, 6, 3),
    11: (2, 9, 6),
    12: (0, 4, 4),
    13: (0, 5, 4),
    14: (0, 5, 4),
    15: (0, 5, 5),
    16: (0, 5, 3),
    18: (0, 4, 3),
    19: (2, 7, 5),
    20: (1, 6, 4),
    21: (0, 2, 2),
    22: (0, 4, 2),
    23: (2, 4, 4),
    32: (1, 4, 4),
    33: (0, 2, 2),
    35: (1, 4, 2),
    37: (0, 3, 2),
    42: (0, 2, 2),
    43: (0, 2, 2),
    44: (0, 1, 1),
    47: (0, 0, 99),
    60: (0, 2, 0),
    61: (0, 0, 0),
    75: (0, 0, 0),
}

Answer = bytes | str


def frame(key: int, version: int, body: bytes, *, tags: bool = False) -> bytes:
    """A request with correlation id 5 and no client id."""
    head = struct.pack(">hhih", key, version, 5, -1) + (b"\0" if tags else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


class Wire:
    """A connection to one of the two."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, data: bytes) -> list[Answer]:
        """The responses to `data`, or "closed" when the connection ends."""
        answers: list[Answer] = []
        with socket.create_connection(("127.0.0.1", self.port), 60) as connection:
            try:
                connection.sendall(data + ALIVE)
            except OSError:
                return ["closed"]
            while True:
                answer = read_frame(connection)
                if answer is None:
                    return [*answers, "closed"]
                if answer[:4] == struct.pack(">i", 77_777):
                    return answers
                answers.append(answer)


def read_frame(connection: socket.socket) -> bytes | None:
    head = read_exactly(connection, 4)
    return None if head is None else read_exactly(connection, struct.unpack(">i", head)[0])


def read_exactly(connection: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        try:
            part = connection.recv(count - len(data))
        except ConnectionError:
            return None
        if not part:
            return None
        data += part
    return data


class Both:
    """klamm and Apache Kafka."""

    def __init__(self, node: NodeProcess, kafka_port: int) -> None:
        self.node, self.wires = node, (Wire(node.port), Wire(kafka_port))

    def ask(self, data: bytes) -> tuple[list[Answer], list[Answer]]:
        ours, theirs = (wire.ask(data) for wire in self.wires)
        return ours, theirs

    def rss(self) -> int:
        """klamm's resident memory in bytes."""
        pages = int(Path(f"/proc/{self.node.pid}/statm").read_text().split()[1])
        return pages * 4096


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    require("java", "mvn")
    folder = tmp_path_factory.mktemp("hostile")
    overrides = {"auto.create.topics.enable": "false"}
    with (
        NodeProcess(folder / "klamm", overrides=overrides) as node,
        running(folder / "kafka", "4L6g3nShT-eMCtK--X86sw", overrides) as kafka,
    ):
        for bootstrap in (node.bootstrap, kafka.bootstrap):
            admin = AdminClient({"bootstrap.servers": bootstrap})
            new = [NewTopic(name, 1, 1) for name in ("t", *(f"bomb-{codec}" for codec in CODECS))]
            for made in admin.create_topics(new).values():
                made.result()
        both = Both(node, kafka.port)
        # The leader is known a little after the topic.
        wait_until(lambda: all(produced(answers) == (ErrorCode.NONE, []) for answers in both.ask(produce(batch()))))
        before = both.rss()
        yield both
        assert both.rss() <= before + RSS_GROWTH_MAX_BYTES, f"{before} grew to {both.rss()}"


def kinds(answers: list[Answer]) -> list[str]:
    return ["closed" if answer == "closed" else "answered" for answer in answers]


# Frames


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, 7, 104_857_601, 2**31 - 1])
def test_sizes(both: Both, size: int) -> None:
    ours, theirs = both.ask(struct.pack(">i", size) + b"\0\x12\0\0\0\0\0")
    assert ours == theirs == ["closed"]


@pytest.mark.parametrize(
    "header",
    [
        struct.pack(">hhih", 18, 0, 5, 0x7FFF),
        struct.pack(">hhih", 18, 0, 5, -2),
        struct.pack(">hhih", 18, 0, 5, -(2**15)),
        struct.pack(">hhih", 18, 0, 5, 4) + b"\xff\xfe\0\x80",
        struct.pack(">hhi", 18, 0, 5),
        struct.pack(">hhi", 3, 1, 5),
        struct.pack(">hhih", 3, 9, 5, -1) + b"\xff\xff\xff\xff\x0f",
        struct.pack(">hhih", 3, 9, 5, -1) + b"\x01\x00\xff\xff\xff\xff\x0f",
        struct.pack(">hhih", 3, 9, 5, -1) + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_headers(both: Both, header: bytes) -> None:
    ours, theirs = both.ask(struct.pack(">i", len(header)) + header)
    assert kinds(ours) == kinds(theirs)


@pytest.mark.parametrize("key", [-(2**15), -1, 4, 5, 6, 7, 52, 53, 93, 999, 2**15 - 1])
def test_unknown_apis(both: Both, key: int) -> None:
    ours, theirs = both.ask(frame(key, 0, b""))
    assert ours == theirs == ["closed"]


@pytest.mark.parametrize("key", SERVED)
def test_unknown_versions(both: Both, key: int) -> None:
    for version in (-(2**15), -1, *([SERVED[key][0] - 1] if SERVED[key][0] else []), 99, 2**15 - 1):
        ours, theirs = both.ask(frame(key, version, b"\0" * 8))
        assert ours == theirs, version


@pytest.mark.parametrize("key", SERVED)
def test_malformed_bodies(both: Both, key: int) -> None:
    """An empty body, one of false lengths, one of negative lengths."""
    first, last, flexible = SERVED[key]
    for version in range(first, last + 1):
        for body in (b"", b"\x7f" * 40, b"\xff" * 40, b"\x80" * 40, b"\0\0\0\x01" + b"\x7f\xff" * 20):
            ours, theirs = both.ask(frame(key, version, body, tags=version >= flexible and key != 18))
            assert kinds(ours) == kinds(theirs), (version, body)


# Batches


def varint(value: int) -> bytes:
    value, out = (value << 1) ^ (value >> 63), b""
    while value > 127:
        value, out = value >> 7, out + bytes([value & 127 | 128])
    return out + bytes([value])


def record(offset: int = 0, value: bytes = b"value", value_length: int | None = None) -> bytes:
    length = len(value) if value_length is None else value_length
    body = b"\0" + varint(0) + varint(offset) + varint(-1) + varint(length) + value + varint(0)
    return varint(len(body)) + body


def batch(payload: bytes | None = None, **changes: Any) -> bytes:
    """One batch. The CRC is correct unless it is given; `length` is added to the correct length."""
    fields: dict[str, Any] = {
        "base": 0,
        "length": 0,
        "epoch": -1,
        "magic": 2,
        "crc": None,
        "attributes": 0,
        "last_delta": 0,
        "first": 1_700_000_000_000,
        "last": 1_700_000_000_000,
        "producer": -1,
        "producer_epoch": -1,
        "sequence": -1,
        "count": 1,
        **changes,
    }
    names = ("attributes", "last_delta", "first", "last", "producer", "producer_epoch", "sequence", "count")
    body = struct.pack(">hiqqqhii", *(fields[name] for name in names)) + (record() if payload is None else payload)
    crc = calc_crc32c(body) if fields["crc"] is None else fields["crc"]
    head = struct.pack(
        ">qiibI", fields["base"], len(body) + 9 + fields["length"], fields["epoch"], fields["magic"], crc
    )
    return head + body


def produce(data: bytes, topic: str = "t", partition: int = 0, acks: int = -1) -> bytes:
    name = topic.encode()
    body = struct.pack(">hhiih", -1, acks, 30_000, 1, len(name)) + name
    return frame(0, 8, body + struct.pack(">iii", 1, partition, len(data)) + data)


def produced(answers: list[Answer]) -> Any:
    """The error code and the indexes of the rejected records."""
    if answers == ["closed"]:
        return answers
    [answer] = answers
    assert isinstance(answer, bytes)
    response = decode_response(0, 8, answer[4:])
    [topic] = response.responses
    [partition] = topic.partition_responses
    return partition.error_code, [each.batch_index for each in partition.record_errors]


TWO = record(0) + record(1)
BATCHES = {
    "wrong CRC": batch(crc=1),
    "no bytes": b"",
    "cut in the header": batch()[:40],
    "cut at the length": batch()[:11],
    "cut in a record": batch()[:-1],
    "bytes behind": batch() + b"\0",
    "half a batch behind": batch() + batch()[:30],
    "two batches": batch() + batch(),
    "longer than it is": batch(length=1),
    "shorter than it is": batch(length=-1),
    "a length below the least": struct.pack(">qi", 0, 10) + batch()[12:],
    "a negative length": struct.pack(">qi", 0, -1) + batch()[12:],
    "the longest length": struct.pack(">qi", 0, 2**31 - 1) + batch()[12:],
    "magic 0": batch(magic=0),
    "magic 1": batch(magic=1),
    "magic 3": batch(magic=3),
    "magic -1": batch(magic=-1),
    "more records told": batch(TWO, count=3, last_delta=2),
    "fewer records told": batch(TWO, count=1, last_delta=0),
    "a count that is not the last delta's": batch(TWO, count=2, last_delta=5),
    "no records told": batch(count=0),
    "no records": batch(b"", count=0, last_delta=-1),
    "a negative count": batch(count=-1),
    "the largest count": batch(count=2**31 - 1, last_delta=2**31 - 2),
    "offsets that do not ascend": batch(record(1) + record(0), count=2, last_delta=1),
    "offsets that begin at 1": batch(record(1), last_delta=0),
    "a value longer than the record": batch(record(value_length=1000)),
    "a value shorter than the record": batch(record(value_length=1)),
    "a negative value length": batch(record(value_length=-5)),
    "a record length that lies": batch(varint(2**31 - 1) + record()[1:]),
    "a negative record length": batch(varint(-7) + record()[1:]),
    "a varint without end": batch(b"\xff" * 12),
    "unknown codec 5": batch(attributes=5),
    "unknown codec 7": batch(attributes=7),
    "unknown attributes": batch(attributes=0x7F00),
    "the delete horizon": batch(attributes=0x40),
    "append time": batch(attributes=0x08),
    "a varint without end in a record": batch(varint(40) + b"\0" + b"\xff" * 39),
    "a control batch": batch(attributes=0x20),
    "transactional without a producer": batch(attributes=0x10),
    "a base offset that is not 0": batch(base=7),
    "a producer without a sequence": batch(producer=5, producer_epoch=0, sequence=-1),
    "a producer without an epoch": batch(producer=5, producer_epoch=-1, sequence=0),
    "a producer that nobody knows": batch(producer=5, producer_epoch=0, sequence=3),
    "sequences that wrap": batch(producer=6, producer_epoch=0, sequence=2**31 - 1),
    "a time before all times": batch(first=-2, last=-2),
    "a time of the far future": batch(first=2**62, last=2**62),
    **{f"codec {codec}, not compressed": batch(attributes=codec) for codec in CODECS},
    **{
        f"codec {codec}, cut": batch(pack(record(value=b"v" * 999))[:-3], attributes=codec)
        for codec, pack in CODECS.items()
    },
    **{
        f"codec {codec}, more told": batch(pack(TWO), attributes=codec, count=3, last_delta=2)
        for codec, pack in CODECS.items()
    },
    **{f"codec {codec}, fewer told": batch(pack(TWO), attributes=codec) for codec, pack in CODECS.items()},
    **{
        f"codec {codec}, a lie": batch(pack(record(value_length=2**30)), attributes=codec)
        for codec, pack in CODECS.items()
    },
}


# Control bits, which only the broker may set. Apache Kafka accepts them, and consumers would misread the batch.
STRICTER = {
    "the delete horizon": (ErrorCode.INVALID_RECORD, []),
    "append time": (ErrorCode.INVALID_TIMESTAMP, []),
}


@pytest.mark.parametrize("case", BATCHES)
def test_batches(both: Both, case: str) -> None:
    ours, theirs = both.ask(produce(BATCHES[case]))
    assert produced(ours) == STRICTER.get(case, produced(theirs))


@pytest.mark.parametrize("codec", CODECS)
def test_bombs(both: Both, codec: int) -> None:
    """Small batches that decompress to much: accepted like in Kafka, but up to a limit and in bounded memory."""
    ours, theirs = both.ask(produce(bomb(codec, BOMB_BYTES), f"bomb-{codec}"))
    assert produced(ours) == produced(theirs)
    ours, _ = both.ask(produce(bomb(codec, TOO_LARGE_BYTES), f"bomb-{codec}"))
    assert produced(ours) == (ErrorCode.MESSAGE_TOO_LARGE, [])


def bomb(codec: int, size_bytes: int) -> bytes:
    return batch(CODECS[codec](record(value=bytes(size_bytes))), attributes=codec)


# Names and configs


NAMES = [
    "",
    ".",
    "..",
    "a" * 249,
    "a" * 250,
    "a" * 32_000,
    "a b",
    "a/b",
    "ä",
    "a\0b",
    "__cluster_metadata",
    "a" * 249 + "/",
]


@pytest.mark.parametrize("name", NAMES)
def test_names(both: Both, name: str) -> None:
    text = name.encode()
    topic = struct.pack(">h", len(text)) + text
    create = frame(
        19, 4, struct.pack(">i", 1) + topic + struct.pack(">ihii", 1, 1, 0, 0) + struct.pack(">i?", 30_000, True)
    )
    metadata = frame(3, 4, struct.pack(">i", 1) + topic + b"\0")
    for data, read in ((create, created), (metadata, described)):
        ours, theirs = both.ask(data)
        assert read(ours) == read(theirs)
    ours, theirs = both.ask(produce(batch(), name))
    assert produced(ours) == produced(theirs)


def created(answers: list[Answer]) -> Any:
    [answer] = answers
    assert isinstance(answer, bytes)
    return [(each.name, each.error_code) for each in decode_response(19, 4, answer[4:]).topics]


def described(answers: list[Answer]) -> Any:
    [answer] = answers
    assert isinstance(answer, bytes)
    return [(each.name, each.error_code) for each in decode_response(3, 4, answer[4:]).topics]


CONFIGS = [
    ("retention.ms", "soon"),
    ("retention.ms", ""),
    ("retention.ms", "1e3"),
    ("retention.ms", "9223372036854775808"),
    ("retention.ms", "-2"),
    ("segment.bytes", "1"),
    ("segment.bytes", "2147483648"),
    ("segment.bytes", "0x10"),
    ("min.cleanable.dirty.ratio", "half"),
    ("min.cleanable.dirty.ratio", "NaN"),
    ("min.cleanable.dirty.ratio", "2"),
    ("cleanup.policy", "burn"),
    ("compression.type", "zip"),
    ("preallocate", "maybe"),
    ("max.message.bytes", "-1"),
    ("no.such.key", "1"),
    ("message.timestamp.type", "Whenever"),
    ("min.insync.replicas", "0"),
    ("follower.replication.throttled.replicas", "x"),
]


@pytest.mark.parametrize(("key", "value"), CONFIGS)
def test_configs(both: Both, key: str, value: str) -> None:
    def text(word: str) -> bytes:
        return struct.pack(">h", len(word)) + word.encode()

    config = struct.pack(">i", 1) + text(key) + text(value)
    topic = text("configured") + struct.pack(">ihi", 1, 1, 0) + config
    ours, theirs = both.ask(frame(19, 4, struct.pack(">i", 1) + topic + struct.pack(">i?", 30_000, True)))
    assert created(ours) == created(theirs)
    alter = struct.pack(">ib", 1, 2) + text("t") + struct.pack(">i", 1) + text(key) + b"\0" + text(value) + b"\x01"
    ours, theirs = both.ask(frame(44, 0, alter))
    assert altered(ours) == altered(theirs)


def altered(answers: list[Answer]) -> Any:
    [answer] = answers
    assert isinstance(answer, bytes)
    return [each.error_code for each in decode_response(44, 0, answer[4:]).responses]


# All at the same time


def test_rejected_requests_do_not_disturb_others(both: Both) -> None:
    """Many invalid requests at a time; the node keeps serving other clients."""
    hostile = [produce(data) for data in BATCHES.values()] + [frame(key, 99, b"") for key in SERVED]
    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(both.wires[0].ask, hostile * 5))
    assert len(outcomes) == len(hostile) * 5
    assert produced(both.wires[0].ask(produce(batch()))) == (ErrorCode.NONE, [])
