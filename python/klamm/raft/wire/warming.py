"""Makes the codec of an API ready before it is in a hurry: message classes are imported when they are first used."""

from __future__ import annotations

from typing import Any, Final

from klamm.protocol.wire.kio_classes import request_class, response_class
from klamm.protocol.wire.schemas import schema_of
from klamm.raft.wire.requests import DECODERS, VERSIONS
from klamm.raft.wire.responses import RESPONSE_CARRIERS

APIS: Final = (52, 53, 54, 1)


def warm(api_key: int) -> None:
    """Prepare the newest version of an API, which klamm's replicas use."""
    version = VERSIONS[api_key][1]
    carrier, _ = DECODERS[api_key]
    schema_of(request_class(api_key, version), carrier)
    answer: Any = RESPONSE_CARRIERS[api_key]
    schema_of(response_class(api_key, version), answer)
