"""The option `columns`."""

from __future__ import annotations

import pytest

from klamm.spark.options.column_choice import all_columns
from klamm.spark.options.option_map import OptionError
from klamm.spark.options.options import SourceOptions, parse_batch, parse_stream

GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
JSON = {"value.format": "json", "value.schema": "id long"}


def columns_of(parsed: SourceOptions) -> tuple[str, ...]:
    return parsed.columns or all_columns(parsed.formats, include_headers=parsed.include_headers)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "key value topic partition offset timestamp timestampType"),
        ({"includeHeaders": "true"}, "key value topic partition offset timestamp timestampType headers"),
        (
            JSON | {"value.onError": "keep", "key.format": "string", "key.onError": "keep"},
            "key value topic partition offset timestamp timestampType _corrupt _corrupt_key",
        ),
        ({"columns": "value, partition,offset"}, "value partition offset"),
        ({"columns": "TIMESTAMPTYPE,Key"}, "timestampType key"),
        ({"columns": "headers,value"}, "headers value"),
        ({"columns": "headers", "includeHeaders": "true"}, "headers"),
        (JSON | {"columns": "offset,value"}, "offset value"),
        (JSON | {"columns": "_corrupt,value", "value.onError": "keep"}, "_corrupt value"),
    ],
)
def test_the_columns_of_a_query(options: dict[str, str], expected: str) -> None:
    for parse in (parse_batch, parse_stream):
        assert columns_of(parse(GIVEN | options)) == tuple(expected.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"columns": "value,offsets"},
            "option 'columns' is 'value,offsets': there is no column 'offsets'; the columns are key,",
        ),
        ({"columns": ""}, "option 'columns' is '': there is no column ''"),
        ({"columns": "value,_corrupt"}, "there is no column '_corrupt'"),
        ({"columns": "value,Value"}, "it names column 'value' twice"),
        ({"columns": "value", "includeHeaders": "true"}, "it contradicts includeHeaders=true"),
        ({"columns": "headers", "includeHeaders": "false"}, "it contradicts includeHeaders=false"),
        (JSON | {"columns": "key"}, "it leaves out 'value', but value.format=json is set"),
        (JSON | {"columns": "value", "value.onError": "keep"}, "it leaves out '_corrupt', the column for values"),
    ],
)
def test_what_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_batch(GIVEN | options)
    assert message in str(refused.value)
