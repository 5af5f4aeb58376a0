"""The types of resources that have configs."""

from __future__ import annotations

import enum


class ResourceType(enum.IntEnum):
    """What a config belongs to; the ids of requests and of ConfigRecord (facts 1.2)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
