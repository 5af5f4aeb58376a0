"""Envelopes: they round-trip, have Apache Kafka's bytes, and invalid ones are rejected with the right code."""

from __future__ import annotations

import pytest

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.messages.forwarding import (
    Enveloped,
    EnvelopeError,
    EnvelopeRequest,
    answer_body,
    enclose,
    open_envelope,
    principal_bytes,
    seal,
)
from klamm.protocol.principal import Principal
from klamm.protocol.wire.codec import read, write_request

FLEXIBLE = Enveloped(ApiKey.CREATE_TOPICS, 7, "a client", "10.1.2.3", b"body", Principal("User", "alice"), 7)
OLD = Enveloped(ApiKey.CREATE_PARTITIONS, 0, "", "::1", b"", Principal(), 8)


@pytest.mark.parametrize("request_", [FLEXIBLE, OLD])
def test_an_envelope_round_trips(request_: Enveloped) -> None:
    data = write_request(enclose(request_), 0)
    assert open_envelope(read(EnvelopeRequest, 0, data)) == request_


@pytest.mark.parametrize("request_", [FLEXIBLE, OLD])
def test_the_answer_belongs_to_its_request(request_: Enveloped) -> None:
    sealed = seal(request_, b"answer")
    assert sealed.response_data is not None
    assert answer_body(request_, sealed.response_data) == b"answer"
    with pytest.raises(MalformedRequest, match="another request"):
        answer_body(request_._replace(correlation_id=99), sealed.response_data)
    with pytest.raises(MalformedRequest):
        answer_body(request_, b"")


def test_the_bytes_of_kafkas_default_principal() -> None:
    # Version 0, two compact strings, a flag, no tagged fields (KIP-590, DefaultPrincipalData.json).
    assert principal_bytes(Principal("User", "bob", token_authenticated=True)) == b"\0\0\x05User\x04bob\x01\0"


def test_a_client_without_an_id_and_with_tagged_fields() -> None:
    header = b"\x00\x13\x00\x07\x00\x00\x00\x05\xff\xff" + b"\x01\x09\x02zz"
    envelope = EnvelopeRequest(header + b"rest", principal_bytes(Principal()), b"\x7f\0\0\x01")
    assert open_envelope(envelope) == Enveloped(ApiKey.CREATE_TOPICS, 7, None, "127.0.0.1", b"rest", Principal(), 5)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\x01\x05User\x04bob\x01\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\0\xff\xff\xff\xff\x0f"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"\x7f\0\0"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b""}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x00\x13\x00\x63\x00\x00\x00\x05\xff\xff\0"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x7f\xff\x00\x00\x00\x00\x00\x05\xff\xff"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x00\x13\x00\x07\x00\x00\x00\x05\x00\x09ab"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x00\x13\x00\x07\x00\x00\x00\x05\x00\x01\xff\0"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x00\x13\x00\x07\x00\x00\x00\x05\xff\xff\x01\x01\xff\x7f"}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_an_invalid_envelope_is_rejected_with_its_code(changes: dict[str, bytes | None], code: ErrorCode) -> None:
    whole = enclose(FLEXIBLE)
    given = {name: getattr(whole, name) for name in ("request_data", "request_principal", "client_host_address")}
    with pytest.raises(EnvelopeError) as caught:
        open_envelope(EnvelopeRequest(**{**given, **changes}))
    assert caught.value.code is code
