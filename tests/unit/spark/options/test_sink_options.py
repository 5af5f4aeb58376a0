"""The topics of rows, and what cannot be written."""

from __future__ import annotations

import pytest

from klamm.spark.options.option_map import OptionError
from klamm.spark.options.sink_options import Delivery, check_columns, parse_sink

BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}


def test_the_topic_and_the_client_s_keys() -> None:
    options = {"Topic": " t ", "kafka.compression.type": "zstd", "kafka.max.poll.records": "1"}
    found = parse_sink(BOOTSTRAP | options, False, is_stream=False)
    assert found.topic == "t"
    assert found.client == {
        "bootstrap.servers": "localhost:9092",
        "client.id": "klamm-spark",
        "compression.type": "zstd",
    }


def test_a_stream_that_is_written_exactly_once() -> None:
    asked = {"deliveryGuarantee": "Exactly-Once", "transactionalIdPrefix": "p"}
    found = parse_sink(BOOTSTRAP | asked, False, is_stream=True)
    assert (found.delivery, found.transactional_id_prefix) == (Delivery.EXACTLY_ONCE, "p")
    assert found.client["transaction.timeout.ms"] == "900000"
    found = parse_sink(BOOTSTRAP | asked | {"kafka.transaction.timeout.ms": "7"}, False, is_stream=True)
    assert found.client["transaction.timeout.ms"] == "7"
    for prefix in ("", "p" * 101):
        with pytest.raises(OptionError, match="must have 1 to 100 characters"):
            parse_sink(BOOTSTRAP | asked | {"transactionalIdPrefix": prefix}, False, is_stream=True)


def test_headers_are_written_whatever_includeheaders_says() -> None:
    """As in Spark's own sink, although its documentation names the option."""
    for word in ("true", "False"):
        assert parse_sink(BOOTSTRAP | {"includeHeaders": word}, False, is_stream=False).topic is None


def test_the_options_of_the_query_are_not_the_sink_s() -> None:
    assert parse_sink(BOOTSTRAP | {"checkpointLocation": "/x", "path": "/y"}, False, is_stream=True).topic is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t"}, "option 'subscribe' ('t') is not known; known are kafka.* and topic"),
        (
            {"kafka.transactional.id": "i"},
            "'kafka.transactional.id' ('i') is not supported: use deliveryGuarantee=exactly-once",
        ),
        ({"includeHeaders": "some"}, "option 'includeHeaders' is 'some': it must be true or false"),
        ({"deliveryGuarantee": "once"}, "('once') is not known: use at-least-once or exactly-once"),
        ({"deliveryGuarantee": "Exactly-Once"}, "('Exactly-Once') needs writeStream"),
        ({"transactionalIdPrefix": "p"}, "('p') needs deliveryGuarantee=exactly-once"),
        ({"kafka.key.serializer": "x"}, "'kafka.key.serializer' ('x') is not supported"),
    ],
)
def test_what_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_sink(BOOTSTRAP | options, False, is_stream=False)
    assert message in str(refused.value)


def test_nothing_is_overwritten() -> None:
    with pytest.raises(OptionError, match="cannot be overwritten"):
        parse_sink(BOOTSTRAP, True, is_stream=False)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": "binary", "topic": "string"}, "there is no column 'value' to write; the columns are key, topic"),
        ({"value": "int", "topic": "string"}, "column 'value' is int; it must be binary or string"),
        ({"value": "binary", "topic": "binary"}, "column 'topic' is binary; it must be string"),
        ({"value": "binary", "topic": "string", "partition": "bigint"}, "column 'partition' is bigint"),
        ({"value": "binary"}, "no topic to write to"),
    ],
)
def test_columns_that_cannot_be_written(columns: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        check_columns(parse_sink(BOOTSTRAP, False, is_stream=False), columns)
    assert message in str(refused.value)


def test_columns_of_other_names_are_ignored() -> None:
    options = parse_sink(BOOTSTRAP | {"topic": "t"}, False, is_stream=False)
    columns = {"value": "string", "id": "map<int,int>"}
    check_columns(options, columns)
    with pytest.raises(OptionError, match="column 'key' is int"):
        check_columns(options, columns | {"key": "int"})
