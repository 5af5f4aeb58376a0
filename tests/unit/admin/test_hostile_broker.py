"""A server that poses as a broker learns no secret by SASL, and cannot make the client print one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.cli.fake_broker import FakeBroker

from klamm.admin.client import Client
from klamm.client import KafkaClient, SecurityError

HANDSHAKE, AUTHENTICATE = 17, 36
SECRET = "open-sesame"
SCRAM = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "me",
    "sasl.password": SECRET,
}
PLAIN = {**SCRAM, "sasl.mechanism": "PLAIN"}


class Impostor(FakeBroker):
    """Accepts every mechanism, and replies with these messages, in which `{nonce}` is the client's."""

    def __init__(self, *messages: bytes, error: int = 0, said: str | None = None) -> None:
        self._left: dict[int, list[bytes]] = {}
        self._messages, self._error, self._said = messages, error, said
        super().__init__({HANDSHAKE: (1, 1, self._take), AUTHENTICATE: (0, 2, self._say)})
        self.heard: list[bytes] = []

    def _take(self, request: Any, version: int) -> Mapping[str, object]:
        self._next = list(self._messages)
        return {"error_code": 0, "mechanisms": (request.mechanism,)}

    def _say(self, request: Any, version: int) -> Mapping[str, object]:
        self.heard.append(request.auth_bytes)
        nonce = request.auth_bytes.rpartition(b"r=")[2]
        message = self._next.pop(0).replace(b"{nonce}", nonce) if self._next else b""
        return {"error_code": self._error, "error_message": self._said, "auth_bytes": message}


def error_of(broker: Impostor, keys: Mapping[str, str]) -> str:
    """The error of both clients."""
    with pytest.raises(SecurityError) as refused, Client(broker.address, config=keys):
        pass
    with KafkaClient(broker.address, keys) as client, pytest.raises(SecurityError) as of_engine:
        client.topics()
    assert str(refused.value) in str(of_engine.value)
    assert SECRET not in str(of_engine.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ((b"",), "its message with salt and nonce is not a valid SCRAM message"),
        ((b"r={nonce}x,s=AAEC,i=2147483647",), "it requests 2147483647 iterations: 4096 to 1000000 are allowed"),
        ((b"r={nonce}x,s=AAEC,i=1",), "it requests 1 iterations"),
        ((b"r={nonce}x,s=,i=4096",), "its salt is empty"),
        ((b"r={nonce},s=AAEC,i=4096",), "its nonce does not begin with the one it was sent"),
        ((b"r={nonce}x,s=AAEC,i=4096",), "its message with its signature is not a valid SCRAM message"),
        ((b"r={nonce}x,s=AAEC,i=4096", b"v=AAEC"), "its signature does not prove that it knows the password"),
        ((b"r={nonce}x,s=AAEC,i=4096", b"e=no\x1b[2J"), "it says no[2J"),
    ],
)
def test_a_server_without_a_proof_of_the_password(messages: tuple[bytes, ...], why: str) -> None:
    with Impostor(*messages) as broker:
        assert f"knows the password of user 'me', so it is not trusted: {why}" in error_of(broker, SCRAM)
        assert not any(SECRET.encode() in message for message in broker.heard)


def test_a_server_that_repeats_the_password() -> None:
    with Impostor(error=58, said=f"no such password: {SECRET}\n") as broker:
        assert "refuses user 'me' by PLAIN: look at sasl.password (SASL_AUTHENTICATION_FAILED" in error_of(
            broker, PLAIN
        )
    with Impostor(error=58, said="try\nanother\x1b[2J") as broker:
        assert "(the broker says: tryanother[2J)" in error_of(broker, PLAIN)
