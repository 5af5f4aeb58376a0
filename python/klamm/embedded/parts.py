"""The parts of a cluster that its program controls: nodes, the clock, and network partitions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from klamm.driving.nodes_loop import NodesLoop
from klamm.embedded.members import Member
from klamm.embedded.nodes_thread import STOP_TIMEOUT_S
from klamm.node.node import Node

T = TypeVar("T")

ADVANCE_S_MAX = 100 * 365 * 24 * 3600


class Run(Protocol):
    """`Cluster.run`."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run `work` on the nodes' loop, and wait for its result."""
        ...


class ClusterClosedError(RuntimeError):
    """The cluster is not running, or was made in another process."""


class ClusterNode:
    """A node of a cluster, which can be stopped and started again while the others run."""

    def __init__(self, run: Run, member: Member) -> None:
        self._run, self._member = run, member

    @property
    def id(self) -> int:
        """Its node id."""
        return self._member.id

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        return self._member.is_running

    def stop(self) -> None:
        """Stop it in an orderly way: a broker's leaders move, and an active controller hands over first."""
        self._run(self._member.stop(STOP_TIMEOUT_S))

    def kill(self) -> None:
        """End it without notifying the others, as far as that is possible within a process."""
        self._run(self._member.stop(0, hand_over=False))

    def start(self) -> None:
        """Start it again, on the same ports and directories."""
        self._run(self._member.start())

    @property
    def is_paused(self) -> bool:
        """Whether it is paused."""
        return self._member.is_paused

    def pause(self) -> None:
        """Stop it as SIGSTOP stops a process: its connections stay open, and it does nothing.

        Nothing happens if it does not run. A stop or a kill resumes it first.
        """
        self._run(self._member.pause())

    def resume(self) -> None:
        """Continue after `pause`. The node notices that time has passed."""

        async def resume() -> None:
            self._member.resume()

        self._run(resume())

    def slow_disk(self, seconds_per_sync: float) -> None:
        """Make each flush of its logs take at least this long; 0 removes the delay. Raises ValueError.

        Records are flushed before they are acknowledged, unless `klamm.flush.before.ack` is `none`, as it is in a
        temporary cluster without `flush=True`. Its metadata log is always flushed.
        """
        self._member.conditions.slow_disk(seconds_per_sync)


class Broker(ClusterNode):
    """A broker of a cluster; it may be a controller too."""

    @property
    def address(self) -> str:
        """Its first listener for clients: host:port."""
        return "{}:{}".format(*client_address(self._member.node))

    def counters(self) -> dict[str, int]:
        """Its counters since its start, by name; see `klamm.node.counters`.

        Raises NodeFailedError unless it runs.
        """
        return self._member.node.counters()

    def gauges(self) -> dict[str, int]:
        """The numbers of its partitions by state; see `klamm.node.counters`. Raises NodeFailedError unless it runs."""
        return self._member.node.gauges()


class Controller(ClusterNode):
    """A controller of a cluster that is not a broker."""

    @property
    def is_active(self) -> bool:
        """Whether it is the active controller."""
        return self._member.is_active

    @property
    def address(self) -> str:
        """The address for --bootstrap-controller of tools: host:port."""
        return "{}:{}".format(*self._member.node.metadata.endpoints[0][1:])


@dataclass(slots=True)
class AdvancedTime:
    """How far a cluster's clock is ahead. Not part of `Clock`, with which a cluster would refer to itself."""

    seconds: float = 0.0


class Clock:
    """The clock of a cluster, which tests can advance."""

    def __init__(self, run: Run, advanced: AdvancedTime) -> None:
        self._run, self._advanced = run, advanced

    @property
    def advanced_s(self) -> float:
        """How far it is ahead of the system's clock, in seconds."""
        return self._advanced.seconds

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass for all nodes; returns when they have passed. Raises ValueError.

        The last minute passes fast, but nodes still exchange messages in it. Any longer time before it passes at once,
        as if all nodes were paused.
        """
        if not 0 <= seconds < ADVANCE_S_MAX:
            raise ValueError(f"a clock can be advanced by 0 to {ADVANCE_S_MAX} seconds at a time, not by {seconds}")

        async def advance() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, NodesLoop), "the nodes' thread runs no other"
            await loop.advanced.advance(seconds)

        self._run(advance())
        self._advanced.seconds += seconds


class NetworkPartition:
    """A partition of the network, which lasts until `heal` or the end of a `with` block."""

    def __init__(self, heal: Callable[[], None]) -> None:
        self._heal = heal

    def heal(self) -> None:
        """Let all bytes pass again, including delayed ones. A second call has no effect."""
        self._heal()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(ClusterClosedError):  # there is no network any more
            self.heal()


def client_address(node: Node) -> tuple[str, int]:
    """A node's first listener for clients."""
    controllers = node.config.controller_listener_names
    return next(address for name, address in node.listeners.items() if name not in controllers)
