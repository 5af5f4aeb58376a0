"""The rules for topic names (Kafka's class `Topic`)."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from klamm.protocol.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH: Final = 249
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@cache
def _legal() -> re.Pattern[str]:
    """Made when a name is first checked."""
    return re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION for a name that Kafka refuses."""
    if _legal().fullmatch(name) and name not in (".", ".."):
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {_what_is_wrong(name)}")


def _what_is_wrong(name: str) -> str:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


def collision_key(name: str) -> str | None:
    """What two names that collide have in common: metrics take '.' for '_'. None for a name with neither."""
    if "." in name or "_" in name:
        return name.replace(".", "_")
    return None
