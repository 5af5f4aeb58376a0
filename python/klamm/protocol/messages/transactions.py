"""The requests and responses of transaction APIs as our own values, for handlers and the transaction coordinator.

The first half are values between them; the second half are messages, whose field names are the schemas' own, so that
`codec.read` and `codec.write` match them. A field that a version lacks keeps its default. Times are in ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import ClassVar, Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value
from klamm.protocol.wire.codec import read, write

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
BATCHED_ADDS_VERSION: Final = 4
"""From this version of AddPartitionsToTxn on, brokers send it, with any number of transactions (KIP-890)."""
VERSION_2_ENDS: Final = 5
"""From this version of EndTxn on, a transaction ends with a higher epoch (KIP-890)."""

Place = tuple[str, int]
"""Topic and partition."""


class InitRequest(Value):
    """InitProducerId with a transactional id. Without a pair, both numbers are -1."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class EndRequest(Value):
    """EndTxn; `version` is the transaction version of the request: 2 from EndTxn v5 on, otherwise 0."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    version: int


class AddRequest(Value):
    """AddPartitionsToTxn of one transaction, or AddOffsetsToTxn."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[Place]
    version: int


class Pair(Value):
    """The response to InitProducerId and EndTxn: an error, or the producer id and epoch to continue with."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class Marker(Value):
    """The end of one transaction, for some partitions."""

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    version: int
    """The transaction version of the producer's requests."""
    places: tuple[Place, ...]


MarkerErrors = Mapping[int, Mapping[Place, ErrorCode]]
"""The results of markers, by producer id and partition."""


class InitProducerIdRequest(Value):
    """API 22."""

    API_KEY: ClassVar[int] = ApiKey.INIT_PRODUCER_ID
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    enable2_pc: bool = False
    keep_prepared_txn: bool = False


class InitProducerIdResponse(Value):
    """Answer 22."""

    API_KEY: ClassVar[int] = ApiKey.INIT_PRODUCER_ID
    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    ongoing_txn_producer_id: int = NO_PRODUCER_ID
    ongoing_txn_producer_epoch: int = NO_EPOCH
    throttle_time_ms: int = 0


class AddedTopic(Value):
    """A topic and partitions of it."""

    name: str
    partitions: tuple[int, ...]


class AddedTransaction(Value):
    """A transaction in an AddPartitionsToTxn."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topics: tuple[AddedTopic, ...]
    verify_only: bool = False


class AddPartitionsToTxnRequest(Value):
    """API 24; below version 4 one transaction, whose fields are at the top."""

    API_KEY: ClassVar[int] = ApiKey.ADD_PARTITIONS_TO_TXN
    transactions: tuple[AddedTransaction, ...] = ()
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = NO_PRODUCER_ID
    v3_and_below_producer_epoch: int = NO_EPOCH
    v3_and_below_topics: tuple[AddedTopic, ...] = ()


class PartitionResult(Value):
    """Whether a partition is in the transaction."""

    partition_index: int
    partition_error_code: ErrorCode


class TopicResult(Value):
    """The results of a topic."""

    name: str
    results_by_partition: tuple[PartitionResult, ...]


class TransactionResult(Value):
    """The results of a transaction."""

    transactional_id: str
    topic_results: tuple[TopicResult, ...]


class AddPartitionsToTxnResponse(Value):
    """Answer 24; below version 4 the topics of one transaction."""

    API_KEY: ClassVar[int] = ApiKey.ADD_PARTITIONS_TO_TXN
    results_by_transaction: tuple[TransactionResult, ...] = ()
    results_by_topic_v3_and_below: tuple[TopicResult, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    throttle_time_ms: int = 0


class AddOffsetsToTxnRequest(Value):
    """API 25."""

    API_KEY: ClassVar[int] = ApiKey.ADD_OFFSETS_TO_TXN
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnResponse(Value):
    """Answer 25."""

    API_KEY: ClassVar[int] = ApiKey.ADD_OFFSETS_TO_TXN
    error_code: ErrorCode = ErrorCode.NONE
    throttle_time_ms: int = 0


class EndTxnRequest(Value):
    """API 26."""

    API_KEY: ClassVar[int] = ApiKey.END_TXN
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(Value):
    """Answer 26."""

    API_KEY: ClassVar[int] = ApiKey.END_TXN
    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    throttle_time_ms: int = 0


class MarkerTopic(Value):
    """Partitions of a topic that get a marker."""

    name: str
    partition_indexes: tuple[int, ...]


class WritableMarker(Value):
    """A marker in a WriteTxnMarkers; below version 2 of transaction version 0."""

    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[MarkerTopic, ...]
    coordinator_epoch: int
    transaction_version: int = 0


class WriteTxnMarkersRequest(Value):
    """API 27."""

    API_KEY: ClassVar[int] = ApiKey.WRITE_TXN_MARKERS
    markers: tuple[WritableMarker, ...] = ()


class WrittenPartition(Value):
    """The result of a partition's marker."""

    partition_index: int
    error_code: ErrorCode


class WrittenTopic(Value):
    """The results of a topic's markers."""

    name: str
    partitions: tuple[WrittenPartition, ...]


class WrittenMarker(Value):
    """The results of the markers of a producer."""

    producer_id: int
    topics: tuple[WrittenTopic, ...]


class WriteTxnMarkersResponse(Value):
    """Answer 27."""

    API_KEY: ClassVar[int] = ApiKey.WRITE_TXN_MARKERS
    markers: tuple[WrittenMarker, ...] = ()


class DescribeTransactionsRequest(Value):
    """API 65."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_TRANSACTIONS
    transactional_ids: tuple[str, ...] = ()


class DescribedTopic(Value):
    """A topic in a transaction."""

    topic: str
    partitions: tuple[int, ...]


class DescribedTransaction(Value):
    """A transactional id, or why it is not described."""

    transactional_id: str
    error_code: ErrorCode = ErrorCode.NONE
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: tuple[DescribedTopic, ...] = ()


class DescribeTransactionsResponse(Value):
    """Answer 65."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_TRANSACTIONS
    transaction_states: tuple[DescribedTransaction, ...] = ()
    throttle_time_ms: int = 0


class ListTransactionsRequest(Value):
    """API 66. Empty filters, -1 and a pattern of None or "" match everything."""

    API_KEY: ClassVar[int] = ApiKey.LIST_TRANSACTIONS
    state_filters: tuple[str, ...] = ()
    producer_id_filters: tuple[int, ...] = ()
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


class ListedTransaction(Value):
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(Value):
    """Answer 66."""

    API_KEY: ClassVar[int] = ApiKey.LIST_TRANSACTIONS
    error_code: ErrorCode = ErrorCode.NONE
    unknown_state_filters: tuple[str, ...] = ()
    transaction_states: tuple[ListedTransaction, ...] = ()
    throttle_time_ms: int = 0


def by_topic(places: Iterable[Place]) -> list[tuple[str, tuple[int, ...]]]:
    """The partitions of each topic, both in order."""
    return [
        (topic, tuple(partition for _, partition in found))
        for topic, found in groupby(sorted(places), key=lambda place: place[0])
    ]


def places_of(topics: Iterable[AddedTopic]) -> list[Place]:
    """The partitions of an AddPartitionsToTxn in its order."""
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def read_add_partitions(version: int, body: bytes) -> tuple[AddedTransaction, ...]:
    """AddPartitionsToTxn; below version 4 one transaction."""
    request = read(AddPartitionsToTxnRequest, version, body)
    if version >= BATCHED_ADDS_VERSION:
        return request.transactions
    one = AddedTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        request.v3_and_below_topics,
    )
    return (one,)


def write_add_partitions(version: int, results: Iterable[tuple[AddedTransaction, Mapping[Place, ErrorCode]]]) -> bytes:
    """The answer: a code for each partition of each transaction, as often as the request names it."""
    made = tuple(TransactionResult(one.transactional_id, _results(one.topics, codes)) for one, codes in results)
    if version >= BATCHED_ADDS_VERSION:
        return write(AddPartitionsToTxnResponse(made), version)
    (one,) = made
    return write(AddPartitionsToTxnResponse((), one.topic_results), version)


def _results(topics: Iterable[AddedTopic], codes: Mapping[Place, ErrorCode]) -> tuple[TopicResult, ...]:
    return tuple(
        TopicResult(topic, tuple(PartitionResult(index, codes[topic, index]) for index in partitions))
        for topic, partitions in by_topic(places_of(topics))
    )


def writable(marker: Marker) -> WritableMarker:
    """A marker as a message."""
    return WritableMarker(
        marker.producer_id,
        marker.epoch,
        marker.is_commit,
        tuple(MarkerTopic(*each) for each in by_topic(marker.places)),
        marker.coordinator_epoch,
        marker.version,
    )


def marker_of(message: WritableMarker) -> Marker:
    """A marker from its message."""
    places = ((topic.name, index) for topic in message.topics for index in topic.partition_indexes)
    return Marker(
        message.producer_id,
        message.producer_epoch,
        message.transaction_result,
        message.coordinator_epoch,
        message.transaction_version,
        tuple(places),
    )


def written(errors: MarkerErrors) -> WriteTxnMarkersResponse:
    """The answer to WriteTxnMarkers."""
    return WriteTxnMarkersResponse(
        tuple(
            WrittenMarker(
                producer_id,
                tuple(
                    WrittenTopic(topic, tuple(WrittenPartition(index, codes[topic, index]) for index in partitions))
                    for topic, partitions in by_topic(codes)
                ),
            )
            for producer_id, codes in errors.items()
        )
    )


def errors_of(response: WriteTxnMarkersResponse) -> MarkerErrors:
    """The results in a response to WriteTxnMarkers."""
    return {
        marker.producer_id: {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in marker.topics
            for partition in topic.partitions
        }
        for marker in response.markers
    }
