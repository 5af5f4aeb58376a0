"""Envelopes: a client's request, forwarded to the active controller with the client's principal and address (KIP-590).

An envelope holds the request with its header, as the client sent it, but for the correlation id, which is the broker's.
"""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.principal import ANONYMOUS, Principal
from klamm.protocol.value import Value
from klamm.protocol.wire import codec
from klamm.protocol.wire.headers import request_header, response_header_size, skip_tagged_fields
from klamm.protocol.wire.kio_classes import data_class, request_class, response_class
from klamm.protocol.wire.schemas import schema_of

PRINCIPAL_VERSION: Final = 0


class EnvelopeRequest(Value):
    """Envelope (58)."""

    API_KEY: ClassVar[int] = ApiKey.ENVELOPE
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class EnvelopeResponse(Value):
    """Envelope (58)."""

    API_KEY: ClassVar[int] = ApiKey.ENVELOPE
    response_data: bytes | None = None
    error_code: ErrorCode = ErrorCode.NONE


class Enveloped(NamedTuple):
    """The request in an envelope; `address` is the client's, `correlation_id` goes back with the answer."""

    api_key: int
    api_version: int
    client_id: str | None
    address: str
    body: bytes
    principal: Principal = ANONYMOUS
    correlation_id: int = 0


class EnvelopeError(Exception):
    """An envelope that cannot be opened, with the code of its answer."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code: Final = code


def enclose(request: Enveloped) -> EnvelopeRequest:
    """The envelope of a request."""
    client_id = (request.client_id or "").encode()
    head = request_header(request.api_key, request.api_version, request.correlation_id, client_id)
    data = head + request.body
    return EnvelopeRequest(data, principal_bytes(request.principal), ipaddress.ip_address(request.address).packed)


def answer_body(request: Enveloped, response_data: bytes) -> bytes:
    """The body of the answer in an envelope. Raises MalformedRequest."""
    if len(response_data) < 4 or struct.unpack_from(">i", response_data)[0] != request.correlation_id:
        raise MalformedRequest(f"an envelope's answer of {len(response_data)} bytes belongs to another request")
    return response_data[response_header_size(request.api_key, request.api_version, response_data) :]


def open_envelope(envelope: EnvelopeRequest) -> Enveloped:
    """The content of an envelope, without parsing the request's body (KIP-590). Raises EnvelopeError."""
    principal = _principal(envelope.request_principal)
    try:
        address = str(ipaddress.ip_address(envelope.client_host_address))
    except ValueError:
        size = len(envelope.client_host_address)
        raise EnvelopeError(ErrorCode.INVALID_REQUEST, f"a client's address of {size} bytes") from None
    try:
        key, version, correlation_id, client_id, start = _header(envelope.request_data)
    except (struct.error, UnicodeDecodeError, MalformedRequest, LookupError) as error:
        text = f"the request in the envelope has no header that can be read: {error}"
        raise EnvelopeError(ErrorCode.UNSUPPORTED_VERSION, text) from None
    return Enveloped(key, version, client_id, address, envelope.request_data[start:], principal, correlation_id)


def seal(request: Enveloped, body: bytes) -> EnvelopeResponse:
    """The answer to an enveloped request, in an envelope."""
    head = struct.pack(">i", request.correlation_id)
    if response_class(request.api_key, request.api_version).__header_schema__.__version__ >= 1:
        head += b"\x00"
    return EnvelopeResponse(head + body)


@lru_cache(maxsize=128)
def principal_bytes(principal: Principal) -> bytes:
    """As Kafka's default serde writes a principal: a version, then the data."""
    cls = data_class("default_principal_data", "DefaultPrincipalData", PRINCIPAL_VERSION)
    data = codec.build(
        cls, type_=principal.type, name=principal.name, token_authenticated=principal.token_authenticated
    )
    return struct.pack(">h", PRINCIPAL_VERSION) + codec.encode(data)


def _principal(data: bytes | None) -> Principal:
    cls = data_class("default_principal_data", "DefaultPrincipalData", PRINCIPAL_VERSION)
    try:
        if data is None or struct.unpack_from(">h", data)[0] != PRINCIPAL_VERSION:
            raise ValueError("it is of no version that is known")
        found = schema_of(cls, cls).read(data[2:])
    except (struct.error, ValueError, OverflowError) as error:
        text = f"the principal in the envelope cannot be read: {error}"
        raise EnvelopeError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, text) from None
    return Principal(found.type_, found.name, found.token_authenticated)


def _header(data: bytes) -> tuple[int, int, int, str | None, int]:
    """API key and version, correlation id, client id, and where the body begins."""
    key, version, correlation_id, size = struct.unpack_from(">hhih", data)
    end = 10 + max(size, 0)
    if end > len(data):
        raise MalformedRequest("it is cut short")
    client_id = None if size < 0 else data[10:end].decode()
    try:
        is_flexible = request_class(key, version).__header_schema__.__version__ >= 2
    except RuntimeError as error:  # `kio.index.KioIndexError`
        raise MalformedRequest(f"API {key} has no version {version}") from error
    return key, version, correlation_id, client_id, skip_tagged_fields(data, end) if is_flexible else end
