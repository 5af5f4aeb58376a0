"""The options and columns of `format("klamm")` for writing: those of Spark's own Kafka sink, and a timestamp. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm.spark.client_options import producer_options
from klamm.spark.options import OptionError, client_keys, guess

_NAMES: Final = {"topic": "topic"}

_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where a query writes."""

    topic: str | None
    """Where every row goes; None: where its column `topic` says."""
    client: Mapping[str, str]
    """Keys of the Kafka client, without `kafka.`."""


def parse_sink(given: Mapping[str, str], overwrite: bool) -> SinkOptions:
    """The options of a query that writes."""
    options = {name.lower(): value for name, value in given.items()}
    # Spark's own, of the query and not of the sink.
    for name in ("checkpointlocation", "path"):
        options.pop(name, None)
    for name, value in options.items():
        if not name.startswith("kafka.") and name not in _NAMES:
            raise OptionError(f"option '{name}' ('{value}') is not known{guess(name, _NAMES)}")
    if overwrite:
        raise OptionError("a topic cannot be overwritten: write with mode('append')")
    keys = client_keys(options)
    try:
        client = producer_options(keys)
    except ValueError as error:
        raise OptionError(str(error)) from None
    topic = options.get("topic", "").strip()
    return SinkOptions(topic or None, client)


def check_columns(options: SinkOptions, columns: Mapping[str, str]) -> None:
    """Refuse what cannot be written; `columns` has Spark's short names of types. Other columns are left away."""
    if "value" not in columns:
        raise OptionError(f"there is no column 'value' to write; there are {', '.join(columns)}")
    if options.topic is None and "topic" not in columns:
        raise OptionError("no topic to write to: set the option topic, or add a column topic")
    for name, allowed in _TYPES.items():
        found = columns.get(name)
        if found is not None and found not in allowed:
            raise OptionError(f"column '{name}' is {found}; to be written it must be {' or '.join(allowed)}")
