"""The nodes of an embedded cluster: planned, started together, stopped and started again one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Final

from klamm._engine.client import Conditions
from klamm.config.node_config import Address, NodeConfig
from klamm.config.rules import check_supported, checked
from klamm.config.sources import embedded_default
from klamm.driving.nodes_loop import OWNER, NodesLoop, Owner
from klamm.formats import meta_properties
from klamm.formats.directories import is_blank
from klamm.formats.storage import FormatRequest, format_storage, random_cluster_id
from klamm.node.boot import Booted, Booting
from klamm.node.node import Node
from klamm.raft.voters.quorum import majority_size

HOST: Final = "127.0.0.1"
CONTROLLER_LISTENER: Final = "CONTROLLER"
# All of them are in one process: messages take no time, and a pause stops all of them.
ELECTION_TIMEOUT_MS: Final = 50


def plan(
    data: Path, brokers: int, controllers: int | None, given: Mapping[str, str], racks: Sequence[str] | None = None
) -> list[NodeConfig]:
    """The configurations of the nodes: of both roles, or brokers 1, 2 ... and then the controllers.

    Raises ValueError, NodeConfigError.
    """
    if racks is not None and len(racks) != brokers:
        raise ValueError(f"each of the {brokers} brokers needs a rack, not {racks=}")
    if brokers < 1 or (controllers is not None and controllers < 1):
        raise ValueError(f"a cluster has a broker and a controller at least, not brokers={brokers}, {controllers=}")
    if controllers is not None:
        planned = _apart(data, brokers, controllers, given)
    elif brokers > 1:
        planned = _combined(data, brokers, given)
    else:
        planned = [embedded_default(data, 0, HOST) | dict(given)]
    for keys, rack in zip(planned, racks or (), strict=False):
        keys["broker.rack"] = rack
    configs = list(map(checked, planned))
    for config in configs:
        check_supported(config)
    return configs


def _common(data: Path, voters: Sequence[int], brokers: int) -> dict[str, str]:
    replicas, least = min(brokers, 3), max(min(brokers, 3) - 1, 1)
    return embedded_default(data, 0, HOST) | {
        "controller.quorum.voters": ",".join(f"{voter}@{HOST}:0" for voter in voters),
        "controller.quorum.election.timeout.ms": str(ELECTION_TIMEOUT_MS),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(least),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(least),
    }


def _combined(data: Path, count: int, given: Mapping[str, str]) -> list[dict[str, str]]:
    voters = range(1, count + 1)
    common = _common(data, voters, count)

    def of(node_id: int) -> dict[str, str]:
        return common | {"node.id": str(node_id)} | dict(given) | {"log.dirs": str(data / f"node-{node_id}")}

    return [of(node_id) for node_id in voters]


def _apart(data: Path, brokers: int, controllers: int, given: Mapping[str, str]) -> list[dict[str, str]]:
    voters = range(brokers + 1, brokers + controllers + 1)
    common = _common(data, voters, brokers)

    def of(role: str, node_id: int, listener: str) -> dict[str, str]:
        own = {"process.roles": role, "node.id": str(node_id), "listeners": f"{listener}://{HOST}:0"}
        return common | own | dict(given) | {"log.dirs": str(data / f"{role}-{node_id}")}

    names = [("broker", node_id, "PLAINTEXT") for node_id in range(1, brokers + 1)]
    names += [("controller", node_id, CONTROLLER_LISTENER) for node_id in voters]
    return [of(*name) for name in names]


def format_blanks(configs: Sequence[NodeConfig], *, is_volatile: bool) -> None:
    """Format the folders that are blank, for the cluster of those that are not. Raises StorageError."""
    blank = [config for config in configs if is_blank(config.all_dirs)]
    known = (meta_properties.load(config.all_dirs).formatted for config in configs if config not in blank)
    ids = [meta.cluster_id for formatted in known for meta in formatted.values()]
    cluster_id = ids[0] if ids else random_cluster_id()
    for config in blank:
        format_storage(config, FormatRequest(cluster_id, is_volatile=is_volatile))


class Member:
    """One node of an embedded cluster, running or not. To be used on the loop's thread."""

    def __init__(self, config: NodeConfig, *, is_volatile: bool) -> None:
        self.config = config
        self._is_volatile = is_volatile
        self._node: Node | None = None
        self._last: Node | None = None
        self._owner = Owner()
        self.conditions = Conditions()

    @property
    def id(self) -> int:
        """The node's id."""
        return self.config.node_id

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._node is not None

    @property
    def is_paused(self) -> bool:
        """Whether it is paused."""
        return self._owner.is_paused

    @property
    def node(self) -> Node:
        """The node as it runs, or as it ran last."""
        assert self._last is not None, f"node {self.id} was never started"
        return self._last

    @property
    def is_active(self) -> bool:
        """Whether it is the active controller."""
        return self._node is not None and self._node.metadata.is_active.is_set()

    async def start(self, booted: dict[Member, Booted] | None = None) -> None:
        """Start it, with its boot if `booted` contains one, which is removed there. No effect if it is running."""
        if self._node is not None:
            return
        OWNER.set(self._owner)  # callbacks that the start schedules, and those that they schedule
        boot = None if booted is None else booted.pop(self)
        node = Node(self.config, boot, is_volatile=self._is_volatile, conditions=self.conditions)
        try:
            await node.start()
        except BaseException:  # also if the start is cancelled; the error is raised
            self.conditions.resume()
            raise
        self._node = self._last = node
        self.config = _with_ports(self.config, node.listeners)

    async def stop(self, timeout_s: float, *, hand_over: bool = True) -> None:
        """Stop it; a paused one is resumed first. No effect if it is not running."""
        self.resume()
        node, self._node = self._node, None
        if node is not None:
            try:
                await node.stop(timeout_s, hand_over=hand_over)
            finally:
                # What waits there for a change would keep the engine's runtime.
                self.conditions.resume()

    async def pause(self) -> None:
        """Suspend all of its callbacks and network tasks. No effect if it is not running."""
        if self._node is None:
            return
        self.conditions.pause()
        _loop().pause(self._owner)
        await asyncio.sleep(0)  # earlier ready callbacks have run by then

    def resume(self) -> None:
        """Resume it; it notices that time has passed."""
        _loop().resume(self._owner)
        self.conditions.resume()


def _loop() -> NodesLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, NodesLoop), "the nodes' thread runs no other"
    return loop


def _with_ports(config: NodeConfig, bound: Mapping[str, Address]) -> NodeConfig:
    """A node that is started again listens on the addresses that the others know."""
    listeners = tuple(replace(one, port=bound[one.name][1]) for one in config.listeners)
    return replace(config, listeners=listeners)


Link = tuple[int, int]
"""The ids of two nodes; for messages from the first to the second."""


def lost_between(groups: Sequence[Iterable[int]], ids: Iterable[int]) -> frozenset[Link]:
    """The links that are cut when only nodes of the same group communicate; nodes of no group form one more group."""
    named = [frozenset(group) for group in groups]
    rest = frozenset(ids).difference(*named)
    together = {pair for group in (*named, rest) for pair in permutations(group, 2)}
    return frozenset(permutations(ids, 2)) - together


class Members:
    """All nodes of an embedded cluster. To be used on the loop's thread."""

    def __init__(self, configs: Sequence[NodeConfig], *, is_volatile: bool) -> None:
        self._is_volatile = is_volatile
        self.all = [Member(config, is_volatile=is_volatile) for config in configs]
        self._cuts: list[frozenset[Link]] = []

    @property
    def brokers(self) -> list[Member]:
        """The nodes that are brokers."""
        return [member for member in self.all if member.config.is_broker]

    @property
    def best_informed(self) -> Node:
        """The running broker with the newest metadata that is not cut off; if none runs, the first broker."""

        def rank(member: Member) -> tuple[bool, bool, int, int]:
            lost = len(self.lost_by(member.id))
            return not member.is_running, member.is_paused, lost, -member.node.metadata.applied_offset

        return min(self.brokers, key=rank).node

    def running_broker(self, broker_id: int) -> Node | None:
        """The node of a broker, if it runs."""
        running = (member.node for member in self.brokers if member.is_running)
        return next((node for node in running if node.config.node_id == broker_id), None)

    async def start(self) -> None:
        """Start all of them at once: a broker waits for controllers, and each of these for a majority."""
        untaken = dict(zip(self.all, self._boot(), strict=True))
        starts = [asyncio.ensure_future(member.start(untaken)) for member in self.all]
        try:
            await asyncio.gather(*starts)
        except BaseException:  # also if the start is cancelled; the error is raised
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            for booted in untaken.values():  # of a task that was cancelled before its first step
                booted.abandon()
            await self.stop(0)
            raise

    def _boot(self) -> list[Booted]:
        """The first half of every start, after which it is known where each controller listens."""
        begun: list[Booting] = []
        booted: list[Booted] = []
        try:
            for member in self.all:
                begun.append(Booting(member.config, is_volatile=self._is_volatile, conditions=member.conditions))
            for booting in begun:
                booted.append(booting.finish())
        except BaseException:  # any failure of one must stop the others; the error is raised
            for done in booted:
                done.abandon()
            for booting in begun[len(booted) :]:
                booting.abandon()
            raise
        self._set_voters({member.id: boot for member, boot in zip(self.all, booted, strict=True)})
        return booted

    def _set_voters(self, booted: Mapping[int, Booted]) -> None:
        voters = {
            member.id: booted[member.id].listeners[member.config.controller_listener_names[0]]
            for member in self.all
            if member.config.is_controller and member.config.voters
        }
        for member in self.all:
            if member.config.voters.keys() == voters.keys():
                member.config = replace(member.config, voters=voters)

    async def stop(self, timeout_s: float) -> None:
        """Stop the brokers with a controlled shutdown, then the controllers, without handing over leadership.

        A controlled shutdown needs a majority of the controllers, so the brokers stop first. Several nodes of both
        roles stop without one.
        """
        for member in self.all:
            member.resume()
            member.conditions.slow_disk(0)
        self._cuts.clear()
        self._apply_cuts()
        brokers = self.brokers
        rest = [member for member in self.all if not member.config.is_broker]
        leave_s = timeout_s if (rest or len(brokers) == 1) and self._have_majority() else 0
        try:
            await asyncio.gather(*(member.stop(leave_s) for member in brokers))
        finally:
            await asyncio.gather(*(member.stop(timeout_s, hand_over=False) for member in rest))

    def on_advanced(self, wall_ms: int, running_ms: int) -> None:
        """The clock was advanced."""
        for member in self.all:
            member.conditions.advance(wall_ms=wall_ms, running_ms=running_ms)

    # The network

    def cut(self, lost: frozenset[Link]) -> None:
        """Lose messages of the first node of each pair to the second, from now on."""
        self._cuts.append(lost)
        self._apply_cuts()

    def heal(self, lost: frozenset[Link] | None = None) -> None:
        """Undo one cut, or all of them. No effect if it was undone before."""
        self._cuts = [cut for cut in self._cuts if lost is not None and cut is not lost]
        self._apply_cuts()

    def lost_by(self, node_id: int) -> set[int]:
        """The nodes whose messages a node does not receive, or that do not receive its messages."""
        links = frozenset[Link]().union(*self._cuts)
        return {other for link in links if node_id in link for other in link if other != node_id}

    def _apply_cuts(self) -> None:
        lost = frozenset[Link]().union(*self._cuts)
        for one, other in permutations(self.all, 2):
            sends, receives = (one.id, other.id) in lost, (other.id, one.id) in lost
            for listener in other.config.listeners:
                if listener.port:  # known since its first start
                    one.conditions.cut(listener.port, sends=sends, receives=receives)

    def _have_majority(self) -> bool:
        controllers = [member.is_running for member in self.all if member.config.is_controller]
        return sum(controllers) >= majority_size(len(controllers))
