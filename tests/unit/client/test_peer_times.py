"""How long a peer waits for a connection, and for a response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.support import simulated_time
from tests.unit.client.fake_network import FakeNetwork

from klamm.client import ClientError, ClientTimeoutError, ConnectionLostError
from klamm.client.peer import Outcome, Peer, PeerConfig


def attempts(config: PeerConfig, network: FakeNetwork, rng: Iterator[float], count: int) -> list[float]:
    """The timeouts in ms of that many consecutive connection attempts without a response."""

    async def ask() -> list[float]:
        loop, found = asyncio.get_running_loop(), []
        peer = Peer(("host", 9093), config, network, rng=lambda: next(rng))
        for _ in range(count):
            began = loop.time()
            assert peer.connect(at_once=True)
            with pytest.raises(ClientTimeoutError, match="no connection within"):
                await peer.request(18, (0, 0), lambda version: b"", timeout_ms=3_600_000)
            found.append(1000 * (loop.time() - began))
        peer.close()
        return found

    found = simulated_time.run(ask())
    assert [channel.is_closed for channel in network.channels] == [True] * count
    return found


def test_the_connection_timeout_grows_with_failed_attempts() -> None:
    middle = iter(lambda: 0.5, None)
    config = PeerConfig("tests", connection_setup_timeout_ms=1000, connection_setup_timeout_max_ms=5000)
    expected = pytest.approx([1000, 2000, 4000, 5000, 5000], rel=1e-4)
    assert attempts(config, FakeNetwork(), middle, 5) == expected
    # One random number for the connection's timeout, one for the following pause.
    rng = iter([0.0, 0.5, 1.0, 0.5])
    assert attempts(config, FakeNetwork(), rng, 2) == pytest.approx([800, 2400], rel=1e-4)


def test_a_silent_connection_has_the_request_timeout() -> None:
    silent = FakeNetwork(lambda handler: handler.on_accepted(("10.0.0.1", 9093)))
    config = PeerConfig("tests", request_timeout_ms=700)
    found = attempts(config, silent, iter(lambda: 0.5, None), 3)
    assert found == pytest.approx([700, 700, 700], rel=1e-4)


def test_a_late_response_closes_the_connection_and_fails_its_requests() -> None:
    def accept_and_open(handler: Peer) -> None:
        handler.on_accepted(("10.0.0.1", 9093))
        handler.on_opened({1: (0, 5)})

    async def ask() -> None:
        loop, network = asyncio.get_running_loop(), FakeNetwork(accept_and_open)
        lost: list[ClientError] = []
        outcomes: list[tuple[str, Outcome, int]] = []  # how many losses there had been
        peer = Peer(("host", 9093), PeerConfig("tests"), network, on_lost=lost.append)
        for name, timeout_ms in (("late", 100), ("patient", 5000)):
            note = lambda outcome, name=name: outcomes.append((name, outcome, len(lost)))  # noqa: E731
            peer.send(1, (0, 9), lambda version: b"%d" % version, note, timeout_ms)
        await asyncio.sleep(0.2)  # the first time-out passes, and the second must not
        assert network.channels[0].sent == [(1, 5, b"5")] * 2
        assert network.channels[0].is_closed
        assert [(name, type(outcome), losses) for name, outcome, losses in outcomes] == [
            ("late", ClientTimeoutError, 0),
            ("patient", ConnectionLostError, 1),
        ]
        assert peer.connected_to is None
        assert peer.unanswered == 0
        assert loop.time() < 1
        peer.close()

    simulated_time.run(ask())
