"""Where rows go, and what cannot be written."""

from __future__ import annotations

import pytest

from klamm.spark.options import OptionError
from klamm.spark.sink_options import check_columns, parse_sink

BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}


def test_the_topic_and_the_client_s_keys() -> None:
    found = parse_sink(
        BOOTSTRAP | {"Topic": " t ", "kafka.compression.type": "zstd", "kafka.max.poll.records": "1"}, False
    )
    assert found.topic == "t"
    assert found.client == {
        "bootstrap.servers": "localhost:9092",
        "client.id": "klamm-spark",
        "compression.type": "zstd",
    }


def test_the_options_of_the_query_are_not_the_sink_s() -> None:
    assert parse_sink(BOOTSTRAP | {"checkpointLocation": "/x", "path": "/y"}, False).topic is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "t"}, "option 'subscribe' ('t') is not known; known are kafka.* and topic"),
        (
            {"kafka.transactional.id": "i"},
            "'kafka.transactional.id' ('i') is not supported: the sink writes at least once",
        ),
        ({"kafka.key.serializer": "x"}, "'kafka.key.serializer' ('x') is not supported"),
    ],
)
def test_what_is_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_sink(BOOTSTRAP | options, False)
    assert told in str(refused.value)


def test_nothing_is_overwritten() -> None:
    with pytest.raises(OptionError, match="cannot be overwritten"):
        parse_sink(BOOTSTRAP, True)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"key": "binary", "topic": "string"}, "there is no column 'value' to write; there are key, topic"),
        ({"value": "int", "topic": "string"}, "column 'value' is int; to be written it must be binary or string"),
        ({"value": "binary", "topic": "binary"}, "column 'topic' is binary; to be written it must be string"),
        ({"value": "binary", "topic": "string", "partition": "bigint"}, "column 'partition' is bigint"),
        ({"value": "binary"}, "no topic to write to"),
    ],
)
def test_columns_that_cannot_be_written(columns: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as refused:
        check_columns(parse_sink(BOOTSTRAP, False), columns)
    assert told in str(refused.value)


def test_columns_of_other_names_are_no_matter() -> None:
    check_columns(parse_sink(BOOTSTRAP | {"topic": "t"}, False), {"value": "string", "id": "map<int,int>"})
