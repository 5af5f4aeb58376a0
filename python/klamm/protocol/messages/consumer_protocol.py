"""What consumers exchange through JoinGroup and SyncGroup: subscriptions and assignments (KIP-429, KIP-792).

A version, int16, and a message in it. The coordinator hands the bytes on without reading more than the topics.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from klamm.protocol.errors import MalformedRequest
from klamm.protocol.value import Value
from klamm.protocol.wire.kio_classes import MessageClass, data_class
from klamm.protocol.wire.schemas import schema_of

NEWEST_VERSION: Final = 3
_VERSION_BYTES: Final = 2

T = TypeVar("T")


class TopicPartitions(Value):
    """Partitions of one topic."""

    topic: str
    partitions: tuple[int, ...] = ()


class Subscription(Value):
    """A member's topics and its owned partitions; `generation_id` is that of its last assignment."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartitions, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None


class Assignment(Value):
    """The partitions assigned to a member."""

    assigned_partitions: tuple[TopicPartitions, ...] = ()
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode the newest version: readers of an older version read its beginning."""
    return _encode(_subscription_class(NEWEST_VERSION), subscription)


def decode_subscription(data: bytes) -> Subscription:
    """Raises MalformedRequest."""
    return _decode(_subscription_class(_version(data)), Subscription, data)


def encode_assignment(assignment: Assignment, version: int = NEWEST_VERSION) -> bytes:
    """In this version, or the newest known one; all versions have the same fields."""
    return _encode(_assignment_class(NEWEST_VERSION), assignment, min(version, NEWEST_VERSION))


def subscription_version(subscription: bytes) -> int:
    """The version in which a member sent its subscription. Raises MalformedRequest."""
    return _version(subscription)


def decode_assignment(data: bytes) -> Assignment:
    """A member that is left out gets no bytes at all. Raises MalformedRequest."""
    return _decode(_assignment_class(_version(data)), Assignment, data) if data else Assignment()


def _version(data: bytes) -> int:
    """The version to read as; a newer one begins with the fields of the newest known one."""
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        raise MalformedRequest(f"{len(data)} bytes of the consumer protocol, version {version}")
    return min(version, NEWEST_VERSION)


def _encode(theirs: MessageClass, value: Any, version: int = NEWEST_VERSION) -> bytes:
    ours: MessageClass = type(value)
    return version.to_bytes(_VERSION_BYTES, "big") + schema_of(theirs, ours).write(value)


def _decode(theirs: MessageClass, ours: type[T], data: bytes) -> T:
    carrier: MessageClass = ours
    try:
        found: T = schema_of(theirs, carrier).read(data[_VERSION_BYTES:])
    except (ValueError, OverflowError) as error:
        raise MalformedRequest(f"{theirs.__name__} v{theirs.__version__} of {len(data)} bytes: {error}") from error
    return found


def _subscription_class(version: int) -> MessageClass:
    return data_class("consumer_protocol_subscription", "ConsumerProtocolSubscription", version)


def _assignment_class(version: int) -> MessageClass:
    return data_class("consumer_protocol_assignment", "ConsumerProtocolAssignment", version)
