"""The headers of requests and answers, where Python writes and reads them: in envelopes."""

from __future__ import annotations

import struct

from klamm.protocol.errors import MalformedRequest
from klamm.protocol.wire import kio_classes


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: bytes) -> bytes:
    """The header of a request, which is 1, or 2 where the message is flexible; 1 for keys that are not Kafka's."""
    fixed = struct.pack(f">hhih{len(client_id)}s", api_key, api_version, correlation_id, len(client_id), client_id)
    is_flexible = api_key >= 0 and kio_classes.request_class(api_key, api_version).__header_schema__.__version__ >= 2
    return fixed + b"\x00" if is_flexible else fixed


def response_header_size(api_key: int, api_version: int, frame: bytes) -> int:
    """Where the body of an answer begins: after the correlation id and the tagged fields, which are not read."""
    if api_key < 0 or kio_classes.response_class(api_key, api_version).__header_schema__.__version__ == 0:
        return 4
    return skip_tagged_fields(frame, 4)


def skip_tagged_fields(frame: bytes, position: int) -> int:
    """Where the body begins after the tagged fields of a header. Raises MalformedRequest."""
    count, position = _uvarint(frame, position)
    for _ in range(count):
        _, position = _uvarint(frame, position)
        size, position = _uvarint(frame, position)
        position += size
    if position > len(frame):
        raise MalformedRequest(f"a header goes beyond its {len(frame)} bytes")
    return position


def _uvarint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedRequest("a header is cut short")
