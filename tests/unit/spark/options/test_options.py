"""The options of the source, and the errors for invalid ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.options.limits import AtOffsets, AtSpecialOffset, AtTimestamp, AtTimestamps
from klamm.spark.options.option_map import OptionError
from klamm.spark.options.options import Assign, SourceOptions, Subscribe, SubscribePattern, parse_batch, parse_stream
from klamm.spark.options.sink_options import parse_sink
from klamm.spark.ranges.offsets import EARLIEST, LATEST

Parse = Callable[[dict[str, str]], SourceOptions]


def given(**options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"} | options


def without_subscribe(**options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": "localhost:9092"} | options


def test_the_defaults_of_a_batch() -> None:
    found = parse_batch(given())
    assert found.subscription == Subscribe(("orders",))
    assert found.starting == AtSpecialOffset(EARLIEST)
    assert found.ending == AtSpecialOffset(LATEST)
    assert found.fail_on_data_loss
    assert not found.include_headers
    assert (found.tasks_min, found.task_rows_max) == (None, None)


def test_the_defaults_of_a_stream() -> None:
    found = parse_stream(given())
    assert found.starting == AtSpecialOffset(LATEST)
    assert (found.trigger_rows_max, found.trigger_rows_min, found.trigger_delay_max_ms) == (None, None, 15 * 60_000)


def test_names_are_case_insensitive() -> None:
    assert parse_stream(given(FAILONDATALOSS="False", MaxOffsetsPerTrigger="7")) == parse_stream(
        given(failOnDataLoss="false", maxoffsetspertrigger="7")
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": " a , b,,a"}, Subscribe(("a", "b"))),
        (
            {"assign": '{"a": [0, 2], "b": [1]}'},
            Assign(frozenset({TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)})),
        ),
    ],
)
def test_topics_and_partitions(options: dict[str, str], expected: object) -> None:
    assert parse_batch(without_subscribe(**options)).subscription == expected


def test_a_pattern_is_a_regular_expression() -> None:
    subscription = parse_batch(without_subscribe(subscribePattern="orders-.*")).subscription
    assert isinstance(subscription, SubscribePattern)
    assert subscription.pattern.pattern == "orders-.*"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "Earliest"}, AtSpecialOffset(EARLIEST)),
        (
            {"startingOffsets": '{"a": {"0": 23, "1": -2}}'},
            AtOffsets({TopicPartition("a", 0): 23, TopicPartition("a", 1): -2}),
        ),
        ({"startingTimestamp": "1700"}, AtTimestamp(1700, strict=True)),
        (
            {"startingTimestamp": "1700", "startingOffsetsByTimestampStrategy": "LATEST"},
            AtTimestamp(1700, strict=False),
        ),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 5}}'}, AtTimestamps({TopicPartition("a", 0): 5}, strict=True)),
        # The more general option wins, as in Spark's own source.
        ({"startingTimestamp": "1", "startingOffsetsByTimestamp": '{"a": {"0": 5}}'}, AtTimestamp(1, strict=True)),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": 5}}', "startingOffsets": "latest"},
            AtTimestamps({TopicPartition("a", 0): 5}, strict=True),
        ),
    ],
)
def test_starting_offsets(options: dict[str, str], expected: object) -> None:
    assert parse_stream(given(**options)).starting == expected


def test_a_missing_ending_timestamp_is_the_end() -> None:
    assert parse_batch(given(endingTimestamp="9")).ending == AtTimestamp(9, strict=False)


def test_client_keys_are_passed_to_the_client() -> None:
    found = parse_batch(given(**{"kafka.isolation.level": "read_committed", "kafka.max.poll.records": "1"})).client
    assert found == {
        "bootstrap.servers": "localhost:9092",
        "client.id": "klamm-spark",
        "isolation.level": "read_committed",
    }


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"kafka.group.id": "g"}, "g"),
        ({"groupIdPrefix": "p"}, "p"),
        ({"groupIdPrefix": "p", "kafka.group.id": "g"}, "g"),
        ({"kafka.client.id": "c", "kafka.group.id": "g"}, "c"),
    ],
)
def test_the_group_names_the_client(options: dict[str, str], name: str) -> None:
    assert parse_batch(given(**options)).client["client.id"] == name


@pytest.mark.parametrize(("value", "expected_ms"), [("15m", 900_000), ("2 s", 2000), ("250", 250), ("1h", 3_600_000)])
def test_a_delay_has_spark_s_units(value: str, expected_ms: int) -> None:
    assert parse_stream(given(maxTriggerDelay=value)).trigger_delay_max_ms == expected_ms


@pytest.mark.parametrize(
    ("value", "expected"), [("1000", 1000), ("128m", 128 << 20), ("1 GB", 1 << 30), ("64k", 64 << 10), ("7b", 7)]
)
def test_bytes_have_spark_s_units(value: str, expected: int) -> None:
    assert parse_batch(given(maxBytesPerPartition=value)).task_bytes_max == expected


BOTH: list[tuple[dict[str, str], str]] = [
    (given(startingOffset="earliest"), "'startingoffset' ('earliest') is not known; did you mean 'startingOffsets'?"),
    (given(path="/x"), "option 'path' ('/x') is not known; known are kafka.*"),
    (
        given(**{"schema.registry.url": "http://u:s@h,ftp://x"}),
        "option 'schema.registry.url' is 'http://h,ftp://x': it must be http",
    ),
    (given(**{"kafkassl.password": "s"}), "option 'kafkassl.password' is not known; known are kafka.*"),
    ({"subscribe": "t"}, "'kafka.bootstrap.servers' is missing"),
    (without_subscribe(), "set exactly one of the options subscribe, subscribePattern and assign (now: none)"),
    (given(assign='{"a": [0]}'), "now: subscribe and assign"),
    (given(subscribe=" , "), "option 'subscribe' is ' , ': it names no topic"),
    (without_subscribe(subscribePattern="("), "option 'subscribePattern' is '(': it is not a regular expression"),
    (without_subscribe(assign="a"), "option 'assign' is 'a': it is no JSON"),
    (without_subscribe(assign="{}"), "it names no partition"),
    (without_subscribe(assign='{"a": [-1]}'), "-1 is no partition of topic 'a'"),
    (given(startingOffsets='{"a": 3}'), "topic 'a' must have an object of partitions, not 3"),
    (given(startingOffsets='{"a": {"0": "x"}}'), 'a-0 must have a whole number, not "x"'),
    (given(startingOffsets='{"a": {"zero": 1}}'), "\"zero\" is no partition of topic 'a'"),
    (given(startingOffsets='{"a": {"0": -3}}'), "offset -3 of a-0 is negative; -1 is the latest"),
    (given(startingOffsets="begin"), "option 'startingOffsets' is 'begin': it is no JSON"),
    (given(startingTimestamp="today"), "option 'startingTimestamp' is 'today': it must be a whole number"),
    (given(startingOffsetsByTimestamp='{"a": {"0": -5}}'), "timestamp -5 of a-0 is negative"),
    (given(startingOffsetsByTimestampStrategy="skip"), "is 'skip': it must be error or latest"),
    (given(minPartitions="0"), "option 'minPartitions' is '0': it must be a whole number above 0"),
    (given(maxRecordsPerPartition="many"), "option 'maxRecordsPerPartition' is 'many'"),
    (
        given(maxBytesPerPartition="0m"),
        "option 'maxBytesPerPartition' is '0m': it must be a number of bytes above 0, with",
    ),
    (given(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="6"), "option 'minOffsetsPerTrigger' is '6': it is above"),
    (given(maxTriggerDelay="15 years"), "option 'maxTriggerDelay' is '15 years'"),
    (given(failOnDataLoss="no"), "option 'failOnDataLoss' is 'no': it must be true or false"),
    (
        given(**{"kafka.auto.offset.reset": "earliest"}),
        "'kafka.auto.offset.reset' ('earliest') is not supported: use st",
    ),
    (given(**{"kafka.value.deserializer": "x.Y"}), "'kafka.value.deserializer' ('x.Y') is not supported"),
]


def test_the_client_s_keys_may_be_secret_and_are_in_no_text() -> None:
    assert "secret" not in repr(parse_batch(given(**{"kafka.client.id": "secret"})))
    assert "secret" not in repr(
        parse_sink({"kafka.bootstrap.servers": "h:1", "kafka.client.id": "secret"}, False, is_stream=False)
    )


@pytest.mark.parametrize("parse", [parse_batch, parse_stream])
@pytest.mark.parametrize(("options", "message"), BOTH)
def test_invalid_options_are_named_with_their_value(parse: Parse, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(options)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "option 'startingOffsets' is 'latest': a batch query cannot start there"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "cannot start there (partition a-0)"),
        ({"endingOffsets": "earliest"}, "option 'endingOffsets' is 'earliest': a batch query cannot end there"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "cannot end there (partition a-0)"),
        ({"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"0": 4}}'}, "offset 5 of a-0 is after 4"),
        ({"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"b": {"0": 9}}'}, "only one of them has a-0, b-0"),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "startingTimestamp 5 is after endingTimestamp 4"),
    ],
)
def test_options_that_a_batch_rejects(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_batch(given(**options))
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"option '{name}' is 'latest': a stream has no end"):
        parse_stream(given(**{name: "latest"}))


SECURED = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": 'x.PlainLoginModule required username="me" password="open-sesame";',
    "kafka.ssl.keystore.key": "open-sesame",
}


def test_secrets_are_passed_to_the_client_and_not_shown() -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    for found in (parse_batch(given(**SECURED)), parse_sink(SECURED | servers, False, is_stream=True)):
        assert found.client["ssl.keystore.key"] == "open-sesame"
        assert "sesame" not in repr(found)


@pytest.mark.parametrize("name", ["sasl.password", "sasl.jaas.config", "ssl.keystore.key", "ssl.key.pem"])
def test_a_secret_without_the_prefix_is_not_shown(name: str) -> None:
    with pytest.raises(OptionError, match="is not known") as refused:
        parse_batch(given(**{name: "open-sesame"}))
    assert "sesame" not in str(refused.value)
