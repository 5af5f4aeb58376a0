"""The types of resources that have configs."""

from __future__ import annotations

import enum


class ResourceType(enum.IntEnum):
    """The type of a config's resource; the ids of requests and of ConfigRecord (`ConfigResource.Type`)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
