"""Times that double: how they grow, and what a client's connections take of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.support import simulated_time
from tests.support.simulated_time import DeafNetworkLoop, SimulatedTimeLoop

from klamm.protocol.backoff import ExponentialBackoff
from klamm.protocol.client import ClientConfig, Peer, PeerError, PeerTimeoutError


@pytest.mark.parametrize(
    ("number", "times"),
    [(0.5, [100, 200, 400, 500, 500]), (0.0, [80, 160, 320, 400, 400]), (0.99, [119.6, 239.2, 478.4, 500, 500])],
)
def test_it_doubles_with_20_percent_of_chance_up_to_the_maximum(number: float, times: list[float]) -> None:
    backoff = ExponentialBackoff(100, 500)
    assert [backoff.time_ms(failures, lambda: number) for failures in range(5)] == pytest.approx(times)
    assert backoff.time_ms(10**6, lambda: 0.5) == 500


def test_a_maximum_below_the_first_is_the_time_itself() -> None:
    assert {ExponentialBackoff(100, 50).time_ms(failures, lambda: 0.0) for failures in range(3)} == {50}


def attempts(config: ClientConfig, dice: Iterator[float], count: int) -> list[float]:
    """How long each of so many connections in a row was waited for, in ms, where nobody answers."""

    async def ask() -> list[float]:
        loop, found = asyncio.get_running_loop(), []
        peer = Peer(("host", 9093), config, dice=lambda: next(dice))
        while len(found) < count:
            began = loop.time()
            if peer.connect(at_once=True):
                with pytest.raises(PeerTimeoutError, match="no connection within"):
                    await peer.request(18, (0, 0), lambda version: b"", timeout_ms=3_600_000)
                found.append(1000 * (loop.time() - began))
        peer.close()
        return found

    return simulated_time.run(ask(), DeafNetworkLoop)


def test_the_time_to_make_a_connection_grows_with_the_connections_that_nobody_took() -> None:
    middle = iter(lambda: 0.5, None)
    config = ClientConfig("tests", connection_setup_timeout_ms=1000, connection_setup_timeout_max_ms=5000)
    assert attempts(config, middle, 5) == pytest.approx([1000, 2000, 4000, 5000, 5000], rel=1e-4)
    # One number for the connection's time, one for the pause that follows.
    dice = iter([0.0, 0.5, 1.0, 0.5])
    assert attempts(config, dice, 2) == pytest.approx([800, 2400], rel=1e-4)


def test_a_peer_that_takes_connections_and_says_nothing_has_a_requests_time() -> None:
    class SilentLoop(SimulatedTimeLoop):
        async def getaddrinfo(self, host, port, **_):  # type: ignore[no-untyped-def]
            return [(2, 1, 6, "", (host, port))]

        async def create_connection(self, factory, *_, **__):  # type: ignore[no-untyped-def]
            connection = factory()
            connection.connection_made(Silence())
            return None, connection

    async def ask() -> list[float]:
        loop, found = asyncio.get_running_loop(), []
        peer = Peer(("host", 9093), ClientConfig("tests", request_timeout_ms=700), dice=lambda: 0.5)
        for _ in range(3):
            began = loop.time()
            assert peer.connect(at_once=True)
            with pytest.raises(PeerError):
                await peer.request(18, (0, 0), lambda version: b"", timeout_ms=3_600_000)
            found.append(1000 * (loop.time() - began))
        peer.close()
        return found

    assert simulated_time.run(ask(), SilentLoop) == pytest.approx([700, 700, 700], rel=1e-4)


class Silence(asyncio.Transport):
    """A connection over which nothing ever comes."""

    def write(self, data: object) -> None:
        pass

    def abort(self) -> None:
        pass

    close = abort
