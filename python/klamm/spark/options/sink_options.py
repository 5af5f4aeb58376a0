"""The options and columns of `format("klamm")` for writing: those of Spark's own Kafka sink, a timestamp, and whether a
stream is written exactly once. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from klamm.spark.options.client_options import producer_options
from klamm.spark.options.option_map import OptionError, OptionMap
from klamm.spark.options.option_values import boolean
from klamm.spark.options.options import client_keys

_NAMES: Final = {
    "topic": "topic",
    "includeheaders": "includeHeaders",
    "deliveryguarantee": "deliveryGuarantee",
    "transactionalidprefix": "transactionalIdPrefix",
}
DEFAULT_PREFIX: Final = "klamm-spark"
PREFIX_CHARS_MAX: Final = 100
TRANSACTION_TIMEOUT_MS: Final = "900000"
"""The default: the maximum that brokers allow by default, because a task uses one transaction."""


class Delivery(StrEnum):
    """How often a row is written if tasks fail."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


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
    """The target of a query, and how it writes."""

    topic: str | None
    """The topic of every row; None: the column `topic`."""
    client: Mapping[str, str] = field(repr=False)
    """Keys of the Kafka client, without `kafka.`."""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    transactional_id_prefix: str = DEFAULT_PREFIX
    """Prefix of the transactional ids, and of the group with the tokens."""


def parse_sink(given: Mapping[str, str], overwrite: bool, *, is_stream: bool) -> SinkOptions:
    """The options of a query that writes."""
    options = {name.lower(): value for name, value in given.items()}
    # Options of the query, which Spark passes to the sink as well.
    for name in ("checkpointlocation", "path"):
        options.pop(name, None)
    # Spark's own sink accepts the option, but always writes the column headers.
    OptionMap(options, _NAMES).get("includeHeaders", boolean, False)
    if overwrite:
        raise OptionError("a topic cannot be overwritten: write with mode('append')")
    delivery = _delivery(options, is_stream)
    keys = client_keys(options)
    try:
        client = producer_options(keys)
    except ValueError as error:
        raise OptionError(str(error)) from None
    if delivery is Delivery.EXACTLY_ONCE:
        client = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS} | client
    topic = options.get("topic", "").strip()
    return SinkOptions(topic or None, client, delivery, _prefix(options, delivery))


def _delivery(options: Mapping[str, str], is_stream: bool) -> Delivery:
    word = options.get("deliveryguarantee", Delivery.AT_LEAST_ONCE)
    if word.lower() not in tuple(Delivery):
        raise OptionError(f"option 'deliveryGuarantee' ('{word}') is not known: use {' or '.join(Delivery)}")
    delivery = Delivery(word.lower())
    if delivery is Delivery.EXACTLY_ONCE and not is_stream:
        raise OptionError(
            f"option 'deliveryGuarantee' ('{word}') needs writeStream: a DataFrame has no batch "
            "number by which a repeated write is recognized. Write at-least-once, or as a stream with the "
            "trigger availableNow"
        )
    return delivery


def _prefix(options: Mapping[str, str], delivery: Delivery) -> str:
    prefix = options.get("transactionalidprefix")
    if prefix is None:
        return DEFAULT_PREFIX
    if delivery is not Delivery.EXACTLY_ONCE:
        raise OptionError(f"option 'transactionalIdPrefix' ('{prefix}') needs deliveryGuarantee=exactly-once")
    if not prefix or len(prefix) > PREFIX_CHARS_MAX:
        raise OptionError(f"option 'transactionalIdPrefix' ('{prefix}') must have 1 to {PREFIX_CHARS_MAX} characters")
    return prefix


def check_columns(options: SinkOptions, columns: Mapping[str, str]) -> None:
    """Refuse columns that cannot be written; `columns` has Spark's short type names. Unknown columns are ignored."""
    if "value" not in columns:
        raise OptionError(f"there is no column 'value' to write; the columns are {', '.join(columns)}")
    if options.topic is None and "topic" not in columns:
        raise OptionError("no topic to write to: set the option topic, or add a column topic")
    for name, allowed in _TYPES.items():
        found = columns.get(name)
        if found is not None and found not in allowed:
            raise OptionError(f"column '{name}' is {found}; it must be {' or '.join(allowed)}")
