"""The options of `format("klamm")` for reading: names, defaults and meaning as in Spark's own Kafka source. Pure.

Spark passes option names in lower case. Unknown options are refused by name and value, so that a typing error never
reads something else than intended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.options.client_options import client_options
from klamm.spark.options.column_choice import OPTION as COLUMNS
from klamm.spark.options.column_choice import choose
from klamm.spark.options.format_options import NAMES as FORMAT_NAMES
from klamm.spark.options.format_options import FormatOptions, parse_format
from klamm.spark.options.limits import AtSpecialOffset, Limit, check_not, check_start_before_end, parse_limit
from klamm.spark.options.option_map import OptionError, OptionMap
from klamm.spark.options.option_values import boolean, byte_count, duration_ms, not_negative, positive, strategy
from klamm.spark.ranges.offsets import EARLIEST, LATEST, parse_partitions


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose whole name matches."""

    pattern: re.Pattern[str]


Subscription = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a query: what it reads, and how."""

    subscription: Subscription
    starting: Limit
    ending: Limit
    """LATEST for a stream, which has no end."""
    starting_option: str
    """The name of the option that set `starting`, for messages; `ending_option` is the one that set `ending`."""
    ending_option: str
    client: Mapping[str, str] = field(repr=False)
    """Keys of the Kafka client, without `kafka.`."""
    tasks_min: int | None
    task_rows_max: int | None
    task_bytes_max: int | None
    trigger_rows_max: int | None
    trigger_rows_min: int | None
    trigger_delay_max_ms: int
    fail_on_data_loss: bool
    include_headers: bool
    columns: tuple[str, ...] | None
    """The selected columns in order; None: all."""
    poll_timeout_ms: int
    retries: int
    retry_interval_ms: int
    value: FormatOptions
    key: FormatOptions

    @property
    def formats(self) -> tuple[FormatOptions, FormatOptions]:
        """The formats of keys and values."""
        return self.key, self.value

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topics by name; None for a pattern."""
        match self.subscription:
            case Subscribe(topics):
                return topics
            case Assign(partitions):
                return tuple(sorted({one.topic for one in partitions}))
            case SubscribePattern():
                return None


_COMMON: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    COLUMNS,
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    *FORMAT_NAMES,
)
_ENDINGS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_NAMES: Final = {name.lower(): name for name in (*_COMMON, *_ENDINGS)}


def parse_common(given: Mapping[str, str]) -> SourceOptions:
    """The options of a query that may be a batch or a stream: fails for options that are invalid for both."""
    return _parse(OptionMap(given, _NAMES), default_start=EARLIEST)


def parse_batch(given: Mapping[str, str]) -> SourceOptions:
    """The options of a batch query: by default from the earliest to the latest offsets."""
    options = OptionMap(given, _NAMES)
    parsed = _parse(options, default_start=EARLIEST)
    check_not(options, parsed.starting_option, parsed.starting, LATEST, "a batch query cannot start there")
    check_not(options, parsed.ending_option, parsed.ending, EARLIEST, "a batch query cannot end there")
    check_start_before_end(parsed.starting_option, parsed.starting, parsed.ending_option, parsed.ending)
    return parsed


def parse_stream(given: Mapping[str, str]) -> SourceOptions:
    """The options of a streaming query: by default from the latest offsets on."""
    options = OptionMap(given, _NAMES)
    for name in _ENDINGS:
        if name in options:
            raise options.error(name, "a stream has no end; remove the option, or read with spark.read")
    return _parse(options, default_start=LATEST)


def _parse(options: OptionMap, default_start: int) -> SourceOptions:
    strict = options.get("startingOffsetsByTimestampStrategy", strategy, True)
    starting_option, starting = parse_limit(options, "starting", AtSpecialOffset(default_start), strict)
    ending_option, ending = parse_limit(options, "ending", AtSpecialOffset(LATEST), False)
    rows_max = options.get("maxOffsetsPerTrigger", positive, None)
    rows_min = options.get("minOffsetsPerTrigger", positive, None)
    if rows_max is not None and rows_min is not None and rows_min > rows_max:
        raise options.error("minOffsetsPerTrigger", f"it is above maxOffsetsPerTrigger, {rows_max}")
    key, value = parse_format(options, "key"), parse_format(options, "value")
    include_headers = options.get("includeHeaders", boolean, False)
    return SourceOptions(
        subscription=_subscription(options),
        starting=starting,
        ending=ending,
        starting_option=starting_option,
        ending_option=ending_option,
        client=_client(options),
        tasks_min=options.get("minPartitions", positive, None),
        task_rows_max=options.get("maxRecordsPerPartition", positive, None),
        task_bytes_max=options.get("maxBytesPerPartition", byte_count, None),
        trigger_rows_max=rows_max,
        trigger_rows_min=rows_min,
        trigger_delay_max_ms=options.get("maxTriggerDelay", duration_ms, 15 * 60 * 1000),
        fail_on_data_loss=options.get("failOnDataLoss", boolean, True),
        include_headers=include_headers,
        columns=choose(options, (key, value), include_headers=include_headers),
        poll_timeout_ms=options.get("kafkaConsumer.pollTimeoutMs", positive, None) or 120_000,
        retries=options.get("fetchOffset.numRetries", positive, None) or 3,
        retry_interval_ms=options.get("fetchOffset.retryIntervalMs", not_negative, 1000),
        value=value,
        key=key,
    )


def _client(options: OptionMap) -> Mapping[str, str]:
    keys = client_keys(options.given)
    try:
        return client_options(keys, options.given.get("groupidprefix"))
    except ValueError as error:
        raise OptionError(str(error)) from None


def client_keys(given: Mapping[str, str]) -> dict[str, str]:
    """The options that begin with `kafka.`, without that prefix."""
    prefix = "kafka."
    keys = {name.removeprefix(prefix): text for name, text in given.items() if name.startswith(prefix)}
    if not keys.get("bootstrap.servers", "").strip():
        raise OptionError("option 'kafka.bootstrap.servers' is missing: set it to host:port of one or more brokers")
    return keys


def _subscription(options: OptionMap) -> Subscription:
    kinds: dict[str, Callable[[str], Subscription]] = {
        "subscribe": _subscribe,
        "subscribePattern": _pattern,
        "assign": _assign,
    }
    given = [name for name in kinds if name in options]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise OptionError(f"set exactly one of the options subscribe, subscribePattern and assign (now: {found})")
    subscription = options.get(given[0], kinds[given[0]], None)
    assert subscription is not None
    return subscription


def _subscribe(value: str) -> Subscription:
    topics = tuple(dict.fromkeys(name for part in value.split(",") if (name := part.strip())))
    if not topics:
        raise ValueError("it names no topic; use topic or topic,topic")
    return Subscribe(topics)


def _pattern(value: str) -> Subscription:
    if not value:
        raise ValueError("it matches no topic; use a regular expression such as orders-.*")
    try:
        return SubscribePattern(re.compile(value))
    except re.error as error:
        raise ValueError(f"it is not a regular expression: {error}") from None


def _assign(value: str) -> Subscription:
    partitions = parse_partitions(value)
    if not partitions:
        raise ValueError('it names no partition; use {"topic": [0, 1]}')
    return Assign(partitions)
