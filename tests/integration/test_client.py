"""klamm's own client with a node, or with the broker that KLAMM_TEST_BOOTSTRAP names."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.client import ClientError, ClientTimeoutError, ConfigError, KafkaClient, OffsetOutOfRangeError
from tests.support.moments import HOUR_AGO_MS
from tests.support.node_process import NodeProcess

EVERYTHING = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


@pytest.fixture
def client(bootstrap: str) -> Iterator[KafkaClient]:
    with KafkaClient(bootstrap) as made:
        yield made


def expected(at: int) -> dict[str, Any]:
    """Record number `at` of `fill`, without its topic."""
    headers = [{"key": "n", "value": b"%d" % at}, {"key": "null", "value": None}] if at % 5 == 0 else None
    return {
        "key": None if at % 7 == 0 else b"k%d" % at,
        "value": None if at % 11 == 0 else b"v" * (at % 40),
        "partition": 0,
        "offset": at,
        "timestamp": (HOUR_AGO_MS + at) * 1000,
        "timestampType": 0,
        "headers": headers,
    }


def fill(bootstrap: str, topic: str, count: int, **config: str) -> None:
    """Produce records 0 to `count` to partition 0, with librdkafka."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.num.messages": 100, **config})
    for at in range(count):
        row = expected(at)
        headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
        producer.produce(topic, row["value"], row["key"], 0, timestamp=HOUR_AGO_MS + at, headers=headers)
    assert producer.flush(30) == 0


def rows(fetched: Any) -> list[dict[str, Any]]:
    """The rows of a slice, which must be consistent; timestamps as numbers."""
    batch = pa.record_batch(fetched)
    batch.validate(full=True)
    if "timestamp" in batch.schema.names:
        at = batch.schema.get_field_index("timestamp")
        batch = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
    return batch.to_pylist()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_range_is_read_as_it_was_written(client: KafkaClient, bootstrap: str, topic: str, codec: str) -> None:
    fill(bootstrap, topic, 1000, **{"compression.type": codec})
    assert client.offsets(topic, {0: -2}) == {0: 0}
    assert client.offsets(topic, {0: -1}) == {0: 1000}
    read, offset = [], 3
    while offset < 990:
        fetched = client.fetch(topic, 0, offset, 990, columns=EVERYTHING)
        assert fetched.next_offset > offset
        assert fetched.high_watermark == 1000
        read += rows(fetched)
        offset = fetched.next_offset
    assert offset == 990
    assert read == [expected(at) | {"topic": topic} for at in range(3, 990)]


def test_a_limited_slice_ends_where_the_next_one_begins(client: KafkaClient, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 500)
    offset, cuts = 0, 0
    while offset < 500:
        fetched = client.fetch(topic, 0, offset, 500, columns=["offset"], max_records=37)
        assert [row["offset"] for row in rows(fetched)] == list(range(offset, min(offset + 37, 500)))
        offset, cuts = fetched.next_offset, cuts + 1
    assert cuts == 14
    one = client.fetch(topic, 0, 0, 500, columns=["value"], max_bytes=1)
    assert len(one) == 1
    assert one.next_offset == 1


def test_only_requested_columns_are_returned(client: KafkaClient, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 10)
    fetched = client.fetch(topic, 0, 0, 10, columns=["offset", "key"])
    assert pa.record_batch(fetched).schema.names == ["offset", "key"]
    assert pa.record_batch(fetched) == pa.record_batch(fetched), "it can be read more than once"
    nothing = client.fetch(topic, 0, 0, 10, columns=[])
    assert (len(nothing), nothing.next_offset) == (10, 10)


def test_a_slice_at_the_end_of_the_log_is_empty(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 10)
    with KafkaClient(bootstrap, {"fetch.max.wait.ms": "10"}) as client:
        fetched = client.fetch(topic, 0, 10, 20, columns=["offset"])
        assert (len(fetched), fetched.next_offset) == (0, 10)


def test_metadata(client: KafkaClient, topic: str) -> None:
    assert topic in client.topics()
    assert client.partitions(topic) == [0]
    assert pickle.loads(pickle.dumps(client)).partitions(topic) == [0]


def test_an_offset_out_of_range(client: KafkaClient, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 10)
    with pytest.raises(OffsetOutOfRangeError, match=rf"offset 11 of {topic}-0 .* holds \[0, 10\)") as refused:
        client.fetch(topic, 0, 11, 20, columns=["offset"])
    error = refused.value
    assert (error.topic, error.partition, error.offset, error.earliest, error.latest) == (topic, 0, 11, 0, 10)


def test_errors_name_what_does_not_exist(client: KafkaClient, topic: str, name: Callable[[str], str]) -> None:
    missing = name("missing")
    with pytest.raises(ClientError, match=f"{missing}.*no such topic") as refused:
        client.partitions(missing)
    assert (refused.value.topic, refused.value.error_code) == (missing, 3)
    with pytest.raises(ClientError, match=f"{topic}-7.* it has 1 partitions"):
        client.fetch(topic, 7, 0, 1, columns=["offset"])


def test_no_broker_answers() -> None:
    client = KafkaClient("127.0.0.1:1", {"default.api.timeout.ms": "200"})
    with pytest.raises(
        ClientTimeoutError, match=r"cannot connect to 127\.0\.0\.1:1: .*bootstrap\.servers=127\.0\.0\.1:1"
    ):
        client.topics()
    client.close()
    with pytest.raises(ClientError, match="closed"):
        client.topics()


def test_a_producer_waits_for_brokers_for_max_block_ms() -> None:
    """Like Java's producer, which ignores `default.api.timeout.ms`; `delivery.timeout.ms` starts later."""
    with (
        KafkaClient("127.0.0.1:1", {"max.block.ms": "200"}) as client,
        pytest.raises(ClientTimeoutError, match=r"no answer within 200 ms .*127\.0\.0\.1:1 .* or raise max\.block\.ms"),
    ):
        client.produce("t", None, None, pa.array([b"v"]))


MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
SSL = {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"group.id": "x"}, r"group\.id is not a configuration"),
        ({"isolation.level": "read"}, r"isolation\.level=read: it must be read_uncommitted or read_committed"),
        ({"fetch.max.bytes": "many"}, r"fetch\.max\.bytes=many: it must be a number from 1"),
        (
            {"security.protocol": "TLS"},
            r"security\.protocol=TLS: it must be PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT"},
            r"sasl\.mechanism: it is missing, .* PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (
            {**PLAIN, "sasl.mechanism": "OAUTHBEARER"},
            r"sasl\.mechanism: OAUTHBEARER is not supported: .* one of PLAIN, SCRAM",
        ),
        ({**PLAIN, "sasl.mechanism": "GSSAPI"}, r"sasl\.mechanism: GSSAPI is not supported"),
        (PLAIN, r"sasl\.jaas\.config: it is missing: set it, or sasl\.username and sasl\.password"),
        ({**PLAIN, "sasl.username": "x"}, r"sasl\.password: it is missing"),
        ({**PLAIN, "sasl.jaas.config": "x.ScramLoginModule required;"}, r"the login module of PLAIN is another"),
        (
            {**PLAIN, "sasl.jaas.config": f"{MODULE} required password='x';"},
            r"sasl\.jaas\.config: it has no username; its form is",
        ),
        (
            {**SSL, "ssl.truststore.location": "/no/such.pem"},
            r"ssl\.truststore\.location: /no/such\.pem cannot be read: No such",
        ),
        (
            {**SSL, "ssl.truststore.type": "JKS"},
            r"JKS stores are not read, only PEM: convert it by `keytool -list -rfc",
        ),
        (
            {**SSL, "ssl.keystore.type": "PKCS12"},
            r"PKCS12 stores are not read, only PEM: convert it by `openssl pkcs12",
        ),
        ({**SSL, "ssl.truststore.certificates": "x", "ssl.ca.pem": "x"}, r"it says the same as ssl\.ca\.pem"),
        ({**SSL, "ssl.keystore.key": "x"}, r"ssl\.keystore\.key: there is no certificate beside it"),
        ({**SSL, "ssl.keystore.certificate.chain": "x"}, r"there is no private key beside it: set ssl\.keystore\.key"),
        ({**SSL, "ssl.enabled.protocols": "TLSv1"}, r"ssl\.enabled\.protocols: TLSv1 is not supported"),
        ({**SSL, "ssl.endpoint.identification.algorithm": "x"}, r"identification\.algorithm=x: it must be https"),
    ],
)
def test_configurations_are_refused_by_name(config: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        KafkaClient("localhost:9092", config)


@pytest.mark.parametrize("servers", ["", "localhost", "localhost:0", ":9092", "a:1,b:x"])
def test_bootstrap_servers_are_host_and_port(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers="):
        KafkaClient(servers)


def test_invalid_arguments(client: KafkaClient, topic: str) -> None:
    for start, end, columns, limit in [
        (-1, 5, [], 1),
        (5, 4, [], 1),
        (0, 1, ["x"], 1),
        (0, 1, ["key"] * 2, 1),
        (0, 1, [], 0),
    ]:
        with pytest.raises(ValueError, match=r"range|column|at least 1"):
            client.fetch(topic, 0, start, end, columns=columns, max_records=limit)


def test_large_records_are_complete(client: KafkaClient, bootstrap: str, topic: str) -> None:
    big = [bytes([at]) * 900_000 for at in range(4)]
    client.produce(topic, 0, None, pa.array(big, pa.binary()))
    client.flush()
    with KafkaClient(bootstrap, {"max.partition.fetch.bytes": "1000", "fetch.max.bytes": "1000"}) as small:
        read, offset = [], 0
        while offset < 4:
            fetched = small.fetch(topic, 0, offset, 4, columns=["value"])
            read += pa.record_batch(fetched)["value"].to_pylist()
            offset = fetched.next_offset
    assert read == big


def test_gaps_of_a_compacted_topic(bootstrap: str, admin: AdminClient, name: Callable[[str], str]) -> None:
    topic = name("compacted")
    config = {"cleanup.policy": "compact", "internal.segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
    with KafkaClient(bootstrap, {"batch.size": "500"}) as client:
        keys = pa.array([b"k%d" % (at % 3) for at in range(300)], pa.binary())
        client.produce(topic, 0, keys, keys)
        client.flush()
        deadline = time.monotonic() + 90
        while True:
            offset, seen = 0, []
            while offset < 250:
                fetched = client.fetch(topic, 0, offset, 250, columns=["offset", "key"])
                assert fetched.next_offset > offset
                seen += pa.record_batch(fetched).to_pylist()
                offset = fetched.next_offset
            assert offset == 250
            assert all(row["key"] == b"k%d" % (row["offset"] % 3) for row in seen)
            if len(seen) < 200:
                break
            assert time.monotonic() < deadline, "nothing was compacted"


def test_a_restart_in_the_middle(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("restarted", 1, 1)])["restarted"].result(30)
        with KafkaClient(node.bootstrap) as client:
            values = [b"%d" % at for at in range(400)]
            client.produce("restarted", 0, None, pa.array(values[:200]))
            client.flush()
            first = client.fetch("restarted", 0, 0, 400, columns=["value"])
            node.stop()
            client.produce("restarted", 0, None, pa.array(values[200:]))
            node.start()
            client.flush()
            read, offset = pa.record_batch(first)["value"].to_pylist(), first.next_offset
            while offset < 400:
                fetched = client.fetch("restarted", 0, offset, 400, columns=["value"])
                read += pa.record_batch(fetched)["value"].to_pylist()
                offset = fetched.next_offset
            assert read == values
