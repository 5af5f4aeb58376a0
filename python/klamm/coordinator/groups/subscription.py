"""Parses the topics of a consumer's subscription. The coordinator does not interpret other protocol metadata."""

from __future__ import annotations

import struct
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")


class SubscriptionError(Exception):
    """Bytes that are not a consumer's subscription."""


def subscribed_topics(subscription: bytes) -> frozenset[str]:
    """The topics of a ConsumerProtocolSubscription: an int16 version and the fields of version 0, with which all begin.

    Raises SubscriptionError.
    """
    try:
        (version,) = _SHORT.unpack_from(subscription, 0)
        (count,) = _INT.unpack_from(subscription, 2)
        if version < 0 or not 0 <= count <= len(subscription):
            raise SubscriptionError(f"version {version} with {count} topics in {len(subscription)} bytes")
        return _topics(subscription, count)
    except struct.error as error:
        raise SubscriptionError(f"{len(subscription)} bytes end too early") from error


def _topics(subscription: bytes, count: int) -> frozenset[str]:
    topics, at = set(), 6
    for _ in range(count):
        (size,) = _SHORT.unpack_from(subscription, at)
        end = at + 2 + size
        if size < 0 or end > len(subscription):
            raise SubscriptionError(f"a topic of {size} bytes at {at} of {len(subscription)}")
        topics.add(subscription[at + 2 : end].decode(errors="replace"))
        at = end
    return frozenset(topics)
