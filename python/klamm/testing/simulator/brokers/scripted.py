"""The commands of a scenario of brokers: what happens is decided by the script, and the rest takes its usual time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from klamm._engine.records import encode_batch
from klamm.controller.operations.nodes import BROKER_HEARTBEAT
from klamm.controller.operations.replicas import ALTER_PARTITION, ALTER_PARTITION_REASSIGNMENTS
from klamm.controller.operations.topics import ELECT_LEADERS
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from klamm.protocol.messages.topics import ElectionType, ElectLeadersRequest
from klamm.testing.simulator.brokers.broker import Broker
from klamm.testing.simulator.brokers.controller import Asked, SimulatedController
from klamm.testing.simulator.brokers.history import Key, batches_of
from klamm.testing.simulator.brokers.network import CONTROLLER
from klamm.testing.simulator.brokers.run import MEMORY, SETTINGS
from klamm.testing.simulator.brokers.scripted_transactions import TransactionalCommands
from klamm.testing.simulator.brokers.scripted_world import ScriptedWorld
from klamm.testing.simulator.brokers.world import TOPIC, ClusterPlan
from klamm.testing.simulator.cuts import Pair

if TYPE_CHECKING:
    from klamm._engine.metadata import Image, PartitionInfo

READY_US: Final = 1_000_000


class ScenarioError(Exception):
    """A command that is not possible in the current state."""


class BrokerCommands:
    """The commands of scenarios of brokers, by the first word of a line. They concern partition 0 of the only topic."""

    def __init__(self, without: str | None = None) -> None:
        self._without = without
        self._folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self._clusters = 0
        self._started: ScriptedWorld | None = None
        self._lines: list[str] = []
        self._produced = 0
        self._heartbeats: dict[int, Asked] = {}  # the last one, by broker
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "cluster": self._cluster,
            "wait": self._wait,
            "produce": self._produce,
            "consume": self._consume,
            "end-offset": self._end_offset,
            "delete-records": self._delete_records,
            "retain": self._retain,
            "start": self._start,
            "kill": self._kill,
            "cut-power": self._cut_power,
            "stop": self._stop,
            "pause": self._pause,
            "cut": self._cut,
            "heal": self._heal,
            "hold-flushes": self._hold_flushes,
            "end-flushes": self._end_flushes,
            "fail-directory": self._fail_directory,
            "move": self._move,
            "flip-bit": self._flip_bit,
            "hold-roles": self._hold_roles,
            "end-roles": self._end_roles,
            "stall": self._stall,
            "keep-image": self._keep_image,
            "apply-image": self._apply_image,
            "lose-answers": self._lose_answers,
            "hold-proposals": self._hold_proposals,
            "repeat-proposals": self._repeat_proposals,
            "keep-fetch": self._keep_fetch,
            "repeat-fetch": self._repeat_fetch,
            "keep-heartbeat": self._keep_heartbeat,
            "repeat-heartbeat": self._repeat_heartbeat,
            "elect": self._elect,
            "reassign": self._reassign,
            "min-isr": self._min_isr,
            "show": self._show,
        }
        self._commands |= TransactionalCommands(lambda: self._world, self._note).commands

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
        self._folder.cleanup()

    def run(self, commands: Sequence[str]) -> str:
        """Execute the commands; returns their output. Raises ScenarioError and InvariantViolatedError."""
        self._lines = []
        for command in commands:
            name, *arguments = command.split()
            if name not in self._commands:
                raise ScenarioError(f"unknown command {name}")
            self._commands[name](arguments)
        return "\n".join(self._lines) or "ok"

    # The cluster

    @property
    def _world(self) -> ScriptedWorld:
        if self._started is None:
            raise ScenarioError("a scenario begins with a cluster")
        return self._started

    @property
    def _controller(self) -> SimulatedController:
        controller = self._world.controller
        assert isinstance(controller, SimulatedController)
        return controller

    def _end(self) -> None:
        for broker in self._started.brokers.values() if self._started is not None else ():
            if broker.is_up:
                broker.engine.kill()

    def _cluster(self, arguments: list[str]) -> None:
        """`cluster 3 [replicas=1,2,3] [min-isr=2] [elr=yes] [unclean=yes] [flush=none] [segment=300] [dirs=2] ...`.

        A new cluster with a topic. `segment`: bytes of a segment. `dirs`: directories of a broker. `damage`: repair it.
        `sessions`: how many fetch sessions a leader has. `partitions`: of the topic, with the same replicas.
        """
        self._end()
        options = dict(argument.split("=") for argument in arguments[1:])
        count = int(arguments[0])
        replicas = _ids(options["replicas"]) if "replicas" in options else range(1, count + 1)
        settings = SETTINGS | {"leader.imbalance.check.interval.seconds": "3600"}
        if "flush" in options:
            settings["klamm.flush.before.ack"] = options["flush"]
        if "sessions" in options:
            settings["max.incremental.fetch.session.cache.slots"] = options["sessions"]
        plan = ClusterPlan(
            broker_count=count,
            partition_count=int(options.get("partitions", 1)),
            replica_count=len(replicas),
            min_insync_replicas=int(options.get("min-isr", 1)),
            elects_unclean="unclean" in options,
            settings=settings,
            features={"metadata.version": 30, "eligible.leader.replicas.version": int("elr" in options)},
            without=self._without,
            may_be_damaged="damage" in options,
            dir_count=int(options.get("dirs", 1)),
            topic_configs={"internal.segment.bytes": options["segment"]} if "segment" in options else {},
            replicas=replicas,
        )
        self._clusters += 1
        self._started = ScriptedWorld(Path(self._folder.name) / str(self._clusters), plan)
        self._world.begin()
        self._world.run(self._world.now_us + READY_US)
        self._world.scripted_network.proposals.clear()
        self._world.on_line = self._note
        controller = self._controller
        ask = controller.ask

        def asked(asked: Asked, reply: Callable[[Any], None]) -> None:
            is_proposal = asked.operation is ALTER_PARTITION
            if asked.operation is BROKER_HEARTBEAT:
                self._heartbeats[asked.request.broker_id] = asked
            ask(asked, self._note_refusals(reply) if is_proposal else reply)

        controller.ask = asked  # type: ignore[method-assign]
        appended = self._world.controller.on_appended

        def on_appended(before: Image, after: Image) -> None:
            was, is_ = before.partition(*self._key), after.partition(*self._key)
            if is_ is not None and was is not None and is_.partition_epoch != was.partition_epoch:
                self._lines.append(_partition_text(is_))
            appended(before, after)

        self._world.controller.on_appended = on_appended

    def _note(self, line: str) -> None:
        self._lines.append(line)

    def _note_refusals(self, reply: Callable[[Any], None]) -> Callable[[Any], None]:
        def answer(answered: Any) -> None:
            codes = [answered.error_code, *(part.error_code for topic in answered.topics for part in topic.partitions)]
            for line in [f"proposal: {code.name}" for code in codes if code is not ErrorCode.NONE]:
                if line not in self._lines[-1:]:  # a proposal is repeated again and again
                    self._lines.append(line)
            reply(answered)

        return answer

    @property
    def _key(self) -> Key:
        return self._world.keys[0]

    def _broker(self, arguments: Sequence[str]) -> Broker:
        return self._world.brokers[int(arguments[0])]

    def _wait(self, arguments: list[str]) -> None:
        """`wait 100`: milliseconds."""
        self._world.run(self._world.now_us + 1000 * int(arguments[0]))

    # Clients

    def _produce(self, arguments: list[str]) -> None:
        """`produce 1 [count=3] [acks=1] [partition=1]`: to broker 1, in one batch."""
        options = dict(argument.split("=") for argument in arguments[1:])
        broker, world = self._broker(arguments), self._world
        self._produced += 1
        number = self._produced
        rows = [(world.now_us // 1000, None, b"%d.%d" % (number, at)) for at in range(int(options.get("count", 1)))]

        def reply(answer: tuple[int, int]) -> None:
            code, end_offset = answer
            result = f"acknowledged, up to {end_offset}" if code == 0 else ErrorCode(code).name
            self._lines.append(f"batch {number}: {result}")

        key = self._world.keys[int(options.get("partition", 0))]
        acks, batch = int(options.get("acks", -1)), encode_batch(rows)
        broker.while_alive(lambda: broker.replication.on_produce(key, batch, acks, reply))()

    def _consume(self, arguments: list[str]) -> None:
        """`consume 1 [from=0]`: from broker 1, as a consumer in its rack."""
        options = dict(argument.split("=") for argument in arguments[1:])
        broker = self._broker(arguments)
        code, high_watermark, data = broker.engine.consume(self._key, int(options.get("from", 0)), -1, broker.now_ms)
        if code:
            self._lines.append(ErrorCode(code).name)
            return
        found = batches_of(data)
        offset = int(options.get("from", 0))
        self._world.looks.histories[self._key].check_consumed(broker.id, offset, found)
        text = f"records {found[0].base_offset}..{found[-1].end_offset - 1}" if found else "no record"
        self._lines.append(f"{text}, high watermark {high_watermark}")

    def _end_offset(self, arguments: list[str]) -> None:
        """`end-offset 1`: as broker 1 tells it to consumers."""
        broker = self._broker(arguments)
        code, end_offset = broker.engine.end_offset(self._key, -1, broker.now_ms)
        if code == 0:
            self._world.on_end_offset(broker.id, self._key, end_offset)
        self._lines.append(ErrorCode(code).name if code else f"end offset {end_offset}")

    def _delete_records(self, arguments: list[str]) -> None:
        """`delete-records 1 5`: broker 1 deletes what is below offset 5."""
        broker, offset = self._broker(arguments), int(arguments[1])

        def reply(code: int) -> None:
            result = ErrorCode(code).name if code else "deleted everywhere"
            self._lines.append(f"records up to {offset}: {result}")

        broker.while_alive(lambda: broker.replication.on_delete_records(self._key, offset, reply))()

    def _retain(self, arguments: list[str]) -> None:
        """`retain 1`: broker 1 removes the segments that retention allows."""
        broker = self._broker(arguments)
        broker.while_alive(lambda: broker.engine.retain(broker.now_ms))()

    # Processes

    def _start(self, arguments: list[str]) -> None:
        self._broker(arguments).start()

    def _kill(self, arguments: list[str]) -> None:
        self._broker(arguments).kill()

    def _cut_power(self, arguments: list[str]) -> None:
        """`cut-power 1 [2 3]`: what was not synced is lost in part."""
        for argument in arguments:
            self._broker([argument]).cut_power()

    def _stop(self, arguments: list[str]) -> None:
        """`stop 1`: a controlled shutdown."""
        self._broker(arguments).begin_shutdown()

    def _pause(self, arguments: list[str]) -> None:
        """`pause 1 500`, `pause controller 500`: broker 1, or the controller, does not run for so many milliseconds."""
        if arguments[0] == "controller":
            self._controller.pause(1000 * int(arguments[1]))
            return
        self._broker(arguments).paused_until_us = self._world.now_us + 1000 * int(arguments[1])

    # Network and disks

    def _cut(self, arguments: list[str]) -> None:
        """`cut 1-2 3>controller`: no message passes both ways, and this way."""
        self._world.network.cut |= _pairs(arguments)

    def _heal(self, arguments: list[str]) -> None:
        """`heal`, `heal 3-1`: messages pass again."""
        self._world.network.cut -= _pairs(arguments) or self._world.network.cut

    def _hold_flushes(self, arguments: list[str]) -> None:
        """`hold-flushes 2`: what broker 2 writes from now on is not durable yet."""
        self._world.held[int(arguments[0])] = []

    def _end_flushes(self, arguments: list[str]) -> None:
        for end in self._world.held.pop(int(arguments[0])):
            end()

    def _hold_roles(self, arguments: list[str]) -> None:
        """`hold-roles 2`: the fetchers of broker 2 do not hear of new roles."""
        self._world.held_roles[int(arguments[0])] = []

    def _end_roles(self, arguments: list[str]) -> None:
        for act in self._world.held_roles.pop(int(arguments[0])):
            act()

    def _fail_directory(self, arguments: list[str]) -> None:
        """`fail-directory 1 0`: the first directory of broker 1 fails, until its next start."""
        self._broker(arguments).fail_directory(int(arguments[1]))

    def _move(self, arguments: list[str]) -> None:
        """`move 1 1`: the replica of broker 1 moves to its second directory."""
        self._broker(arguments).move_replica(TOPIC, 0, int(arguments[1]))

    def _flip_bit(self, arguments: list[str]) -> None:
        """`flip-bit 3 [end=4]`: a bit changes in a complete segment of broker 3, which is down.

        The batch is committed, or one up to that offset.
        """
        broker = self._broker(arguments)
        options = dict(argument.split("=") for argument in arguments[1:])
        self._world.damage(broker, {f"{TOPIC}-0": int(options["end"])} if "end" in options else None)
        self._lines.append(f"a bit of {self._world.damaged} has changed")

    # Metadata

    def _stall(self, arguments: list[str]) -> None:
        """`stall 1 2000`: broker 1 fetches no metadata for so many milliseconds."""
        self._broker(arguments).stalled_until_us = self._world.now_us + 1000 * int(arguments[1])

    def _keep_image(self, arguments: list[str]) -> None:
        """`keep-image 1`: broker 1 fetches the metadata, and the answer is on its way for longer."""
        self._kept_image = self._world.controller.committed

    def _apply_image(self, arguments: list[str]) -> None:
        """`apply-image 1`: what was kept arrives now."""
        broker, kept = self._broker(arguments), self._kept_image
        broker.while_alive(lambda: broker.apply(kept))()

    # The controller

    def _lose_answers(self, arguments: list[str]) -> None:
        """`lose-answers yes`, `lose-answers no`: proposals are decided, and leaders do not hear it."""
        self._world.scripted_network.loses_answers = arguments == ["yes"]

    def _hold_proposals(self, arguments: list[str]) -> None:
        """From now on no proposal of an ISR arrives by itself."""
        network = self._world.scripted_network
        network.proposals, network.holds_proposals = [], True

    def _repeat_proposals(self, arguments: list[str]) -> None:
        """Every proposal that was sent arrives once more, or those that were held arrive."""
        for arrive in list(self._world.scripted_network.proposals):
            arrive()

    def _keep_fetch(self, arguments: list[str]) -> None:
        """`keep-fetch 3`: the last fetch of broker 3 is on its way for longer."""
        self._kept_fetch = self._world.scripted_network.fetches[int(arguments[0])]

    def _repeat_fetch(self, arguments: list[str]) -> None:
        """`repeat-fetch`: what was kept arrives now."""
        self._kept_fetch()

    def _keep_heartbeat(self, arguments: list[str]) -> None:
        """`keep-heartbeat 3`: the last heartbeat of broker 3 is on its way for longer."""
        self._kept_heartbeat = self._heartbeats[int(arguments[0])]

    def _repeat_heartbeat(self, arguments: list[str]) -> None:
        """`repeat-heartbeat`: what was kept arrives now."""

        def answered(answer: Any) -> None:
            self._lines.append(f"heartbeat: {answer.error_code.name}")

        self._controller.ask(self._kept_heartbeat, answered)

    def _elect(self, arguments: list[str]) -> None:
        """`elect preferred`, `elect unclean`."""

        def answered(answer: Any) -> None:
            found = [part.error_code for topic in answer.replica_election_results for part in topic.partition_result]
            self._lines += [f"election: {code.name}" for code in found if code is not ErrorCode.NONE]

        if arguments[0] == "unclean":
            self._world.on_unclean_election_asked()
        request = ElectLeadersRequest(None, ElectionType[arguments[0].upper()])
        self._controller.ask(Asked(ELECT_LEADERS, request, 2), answered)

    def _reassign(self, arguments: list[str]) -> None:
        """`reassign 2,3`, `reassign cancel`."""

        def answered(answer: Any) -> None:
            codes = [part.error_code for topic in answer.responses for part in topic.partitions]
            self._lines += [f"reassignment: {code.name}" for code in codes if code is not ErrorCode.NONE]

        replicas = None if arguments[0] == "cancel" else tuple(_ids(arguments[0]))
        topic = ReassignableTopic(TOPIC, (ReassignablePartition(0, replicas),))
        request = AlterPartitionReassignmentsRequest((topic,))
        self._controller.ask(Asked(ALTER_PARTITION_REASSIGNMENTS, request, 1), answered)

    def _min_isr(self, arguments: list[str]) -> None:
        """`min-isr 1`."""
        self._world.operator.set_min_isr(int(arguments[0]))

    # Output

    def _show(self, arguments: list[str]) -> None:
        partition = self._world.controller.image.partition(*self._key)
        assert partition is not None, "no command deletes the topic"
        self._lines.append(_partition_text(partition))
        self._lines += [f"{broker.id}: {self._state_of(broker)}" for broker in self._world.brokers.values()]

    def _state_of(self, broker: Broker) -> str:
        registered = self._world.controller.image.broker(broker.id)
        fenced = ", fenced" if registered is None or registered.fenced else ""
        if not broker.is_up:
            return "down" + fenced
        gauges = self._world.looks.gauges(broker.id, self._key)
        if gauges is None:
            return "no replica" + fenced
        role = f"leads epoch {gauges.leader_epoch}" if gauges.is_leader else f"follows in epoch {gauges.leader_epoch}"
        isr = f", ISR {_text(gauges.isr)}" if gauges.is_leader else ""
        log = f"log {gauges.log_start_offset}..{gauges.log_end_offset}, flushed {gauges.flushed_offset}"
        return f"{role}{isr}, {log}, high watermark {gauges.high_watermark}{self._directory_of(broker)}{fenced}"

    def _directory_of(self, broker: Broker) -> str:
        partition = self._world.controller.image.partition(*self._key)
        if len(broker.directory_ids) == 1 or partition is None:
            return ""
        directory_id = partition.directories[partition.replicas.index(broker.id)]
        return f", directory {broker.directory_ids.index(directory_id)}" if directory_id in broker.directory_ids else ""


def _pairs(arguments: Sequence[str]) -> set[Pair]:
    pairs = set()
    for argument in arguments:
        ends = argument.replace("controller", str(CONTROLLER)).replace(">", "-").split("-")
        source, target = map(int, ends)
        pairs |= {(source, target)} | ({(target, source)} if "-" in argument else set())
    return pairs


def _ids(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def _text(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "none"


def _partition_text(partition: PartitionInfo) -> str:
    leader = "no leader" if partition.leader < 0 else f"leader {partition.leader}"
    parts = [f"{leader} in epoch {partition.leader_epoch}", f"ISR {_text(partition.isr)}"]
    named = {"ELR": partition.elr, "last known ELR": partition.last_known_elr}
    named |= {"adding": partition.adding_replicas, "removing": partition.removing_replicas}
    parts += [f"{name} {_text(ids)}" for name, ids in named.items() if ids]
    if partition.leader_recovery_state:
        parts.append("recovering")
    return f"partition: {', '.join(parts)}"
