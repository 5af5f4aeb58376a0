"""Scenario files: a paragraph, commands, and all that they print. The rules of raft, readable as documentation.

A file is blocks divided by blank lines: `#` lines say what is shown, then commands, one a line, `----`, and the output.
Nothing happens by itself: messages, writes and flushes wait until a command lets them go, and time stands still.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from klamm.raft.config import RaftConfig
from klamm.raft.effects import Reply, SendRequest
from klamm.raft.election_state import ElectionState
from klamm.raft.events import PeerGone, PeerRefused, ResignRequested, ShutdownRequested
from klamm.raft.log import OffsetAndEpoch
from klamm.raft.messages import (
    AddVoterRequest,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    Request,
    VoteRequest,
)
from klamm.raft.role_states import Leader
from klamm.raft.voters import Endpoint, ReplicaKey, VoterSet
from klamm.testing.simulator import memory_snapshot, words
from klamm.testing.simulator.operator import CLIENT
from klamm.testing.simulator.replica import Envelope, SimulatedReplica, format_first_voters, key_of

SETTLE_STEPS_MAX = 10_000


@dataclass(slots=True)
class Block:
    """One step of a scenario."""

    comments: list[str]
    commands: list[str]
    output: str


def parse(text: str) -> list[Block]:
    """The blocks of a file. Raises ValueError for a block without `----`."""
    blocks, pending = [], []
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.splitlines()
        pending += [line for line in lines if line.startswith("#")]
        rest = [line for line in lines if not line.startswith("#")]
        if not rest:
            pending.append("")
            continue
        if "----" not in rest:
            raise ValueError(f"no ---- after {rest[0]!r}")
        divider = rest.index("----")
        blocks.append(Block(pending, rest[:divider], "\n".join(rest[divider + 1 :])))
        pending = []
    return blocks


def render(blocks: list[Block]) -> str:
    """The file of these blocks."""
    return "\n\n".join("\n".join([*block.comments, *block.commands, "----", block.output]) for block in blocks) + "\n"


def play(text: str) -> str:
    """The file with the output that its commands print now."""
    stage, blocks = Stage(), parse(text)
    for block in blocks:
        block.output = stage.run(block.commands)
    return render(blocks)


def play_file(path: Path, *, rewrite: bool) -> tuple[str, str]:
    """What the file says and what happens; with `rewrite` the file is made to say it."""
    expected = path.read_text()
    actual = play(expected)
    if rewrite:
        path.write_text(actual)
    return expected, actual


class Stage:
    """Replicas, and the commands that move them."""

    def __init__(self) -> None:
        self.replicas: dict[int, SimulatedReplica] = {}
        self.clocks_ms: dict[int, int] = {}
        self.messages: list[Envelope] = []
        self._lines: list[str] = []
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "quorum": self._quorum,
            "stored": self._stored,
            "records": self._records,
            "start": self._start,
            "wait": self._wait,
            "timeout": self._timeout,
            "disk": self._disk,
            "deliver": self._deliver,
            "lose": self._lose,
            "settle": self._settle,
            "propose": self._propose,
            "resign": self._resign,
            "shutdown": self._shutdown,
            "crash": self._crash,
            "gone": self._gone,
            "refused": self._refused,
            "snapshot": self._snapshot,
            "clean": self._clean,
            "damage": self._damage,
            "ask-vote": self._ask_vote,
            "ask-snapshot": self._ask_snapshot,
            "add-voter": self._add_voter,
            "remove-voter": self._remove_voter,
            "wipe": self._wipe,
            "move": self._move,
            "voters": self._voters,
            "show": self._show,
            "log": self._log,
            "pending": self._pending,
        }

    def run(self, commands: list[str]) -> str:
        """Carry out the commands; returns what they print."""
        self._lines = []
        for command in commands:
            name, *arguments = command.split()
            self._commands[name](arguments)
        return "\n".join(self._lines) or "ok"

    # Setting up

    def _quorum(self, arguments: list[str]) -> None:
        """`quorum 1 2 3 [observers 4] [dynamic=yes] [auto-join=yes]`: new replicas, all down, with empty logs.

        `fetch-bytes=1`, `snapshot-bytes=50`: of an answer. Dynamic: the voters were formatted with all of their names
        and directories A, the observers with none.
        """
        self.replicas, self.messages = {}, []
        options = _options(arguments)
        is_dynamic = "dynamic" in options
        ids = [argument for argument in arguments if "=" not in argument]
        voters, _, observers = " ".join(ids).partition("observers")
        voter_ids = [int(node_id) for node_id in voters.split()]
        voter_set = VoterSet(()) if is_dynamic else VoterSet.of_ids(voter_ids)
        servers = tuple(Endpoint("CONTROLLER", f"node-{voter_id}", 9093) for voter_id in voter_ids[:1])
        config = RaftConfig(
            fetch_max_bytes=int(options.get("fetch-bytes", 1 << 20)),
            fetch_snapshot_max_bytes=int(options.get("snapshot-bytes", 1 << 20)),
            auto_join="auto-join" in options,
            bootstrap_servers=servers if is_dynamic else (),
        )
        for node_id in [*voter_ids, *map(int, observers.split())]:
            self.clocks_ms[node_id] = 0
            clock = partial(self.clocks_ms.__getitem__, node_id)
            directory = "A" if is_dynamic else None
            self.replicas[node_id] = SimulatedReplica(node_id, voter_set, config, clock, directory=directory)
        if is_dynamic:
            format_first_voters([self.replicas[voter_id] for voter_id in voter_ids])

    def _stored(self, arguments: list[str]) -> None:
        """`stored 1 epoch=5 leader=2 voted=3`: what quorum-state holds."""
        options = _options(arguments[1:])
        leader, voted = options.get("leader"), options.get("voted")
        self._replica(arguments).stored = ElectionState(
            int(options["epoch"]), int(leader) if leader else None, ReplicaKey(int(voted)) if voted else None
        )

    def _records(self, arguments: list[str]) -> None:
        """`records 1 1 1 2`: append flushed records of these epochs, a batch each."""
        replica = self._replica(arguments)
        for epoch in map(int, arguments[1:]):
            replica.log.append([b"%d/%d" % (epoch, replica.log.end_offset)], epoch, 0)
        replica.log.flushed_offset = replica.log.end_offset

    # What happens

    def _start(self, arguments: list[str]) -> None:
        """`start 1 2`: begin a life; the dice of replica n have the seed n."""
        for node_id in map(int, arguments):
            self._act(self.replicas[node_id], lambda node_id=node_id: self.replicas[node_id].start(node_id))  # type: ignore[misc]

    def _wait(self, arguments: list[str]) -> None:
        """`wait 500 [quietly]`: so many ms pass for all; messages pass after every 100 when it is quiet."""
        kept = len(self._lines)
        for _ in range(int(arguments[0]) // 100 if "quietly" in arguments else 0):
            self._pass_time(100)
            self._settle(["quietly"])
        if "quietly" in arguments:
            del self._lines[kept:]
            return
        self._pass_time(int(arguments[0]))

    def _pass_time(self, duration_ms: int) -> None:
        for _ in range(duration_ms):
            for replica in self.replicas.values():
                self.clocks_ms[replica.id] += 1
                if replica.core is not None and replica.core.deadline_ms <= self.clocks_ms[replica.id]:
                    self._act(replica, replica.tick)

    def _timeout(self, arguments: list[str]) -> None:
        """`timeout 1`: the clock of that replica, and no other, goes on to its role's own deadline."""
        replica = self._replica(arguments)
        state = replica.running.replica.state
        deadline_ms = state.check_quorum_deadline_ms if isinstance(state, Leader) else state.deadline_ms
        self.clocks_ms[replica.id] = max(self.clocks_ms[replica.id], deadline_ms)
        self._act(replica, replica.tick)

    def _disk(self, arguments: list[str]) -> None:
        """`disk [1 2]`: finish the writes and flushes of these replicas, of all by default."""
        for node_id in map(int, arguments or map(str, self.replicas)):
            while self._finish_disk_work(self.replicas[node_id]):
                pass

    def _deliver(self, arguments: list[str]) -> None:
        """`deliver [1 2]`: let pass what is on its way, or what is on its way to one of these replicas."""
        targets = set(map(int, arguments or map(str, self.replicas)))
        passing = [envelope for envelope in self.messages if envelope.target in targets]
        for envelope in passing:
            self._pass(envelope)

    def _lose(self, arguments: list[str]) -> None:
        """`lose [1 2]`: what is on its way to these replicas, or to any, is lost; no sender notices."""
        targets = set(map(int, arguments or map(str, self.replicas)))
        for envelope in [envelope for envelope in self.messages if envelope.target in targets]:
            self.messages.remove(envelope)
            self._lines.append(f"lost: {words.of_envelope(envelope)}")

    def _settle(self, arguments: list[str]) -> None:
        """`settle [quietly]`: disks and messages, until nothing is under way."""
        kept = len(self._lines)
        for _ in range(SETTLE_STEPS_MAX):
            worked = [self._finish_disk_work(replica) for replica in self.replicas.values()]
            if self.messages:
                self._pass(self.messages[0])
            elif not any(worked):
                break
        else:
            raise AssertionError("it never settles")
        if "quietly" in arguments:
            del self._lines[kept:]

    def _propose(self, arguments: list[str]) -> None:
        """`propose 1 text`: append a record at a leader."""
        replica = self._replica(arguments)
        if not replica.running.can_append:
            raise ValueError(f"{replica.id} does not lead")
        self._act(replica, lambda: replica.propose([arguments[1].encode()]))

    def _resign(self, arguments: list[str]) -> None:
        """`resign 1`: the leader gives up its epoch."""
        replica = self._replica(arguments)
        self._act(replica, lambda: replica.step(ResignRequested(replica.epoch)))

    def _shutdown(self, arguments: list[str]) -> None:
        """`shutdown 1`: the node is to stop."""
        replica = self._replica(arguments)
        self._act(replica, lambda: replica.step(ShutdownRequested()))

    def _crash(self, arguments: list[str]) -> None:
        """`crash 1 [keep=N]`: the process dies, or with `keep` the power goes and N unflushed records stay."""
        replica, options = self._replica(arguments), _options(arguments[1:])
        replica.crash(int(options["keep"]) if "keep" in options else None, write_survives=False)
        self.messages = [envelope for envelope in self.messages if replica.id not in (envelope.source, envelope.target)]

    def _gone(self, arguments: list[str]) -> None:
        """`gone 1 at=2`: the process of 1 refuses the connection of 2."""
        replica = self.replicas[int(_options(arguments)["at"])]
        self._act(replica, lambda: replica.step(PeerGone(int(arguments[0]))))

    def _refused(self, arguments: list[str]) -> None:
        """`refused 1 at=2`: nobody listens where 2 looks for 1, whom it was never connected to."""
        replica = self.replicas[int(_options(arguments)["at"])]
        self._act(replica, lambda: replica.step(PeerRefused(int(arguments[0]))))

    def _snapshot(self, arguments: list[str]) -> None:
        """`snapshot 1`: write what is committed as a snapshot of 100 bytes."""
        replica = self._replica(arguments)
        replica.begin_snapshot(bytes([replica.id]) * (100 - memory_snapshot.SIZE_MIN))
        replica.finish_snapshot()
        self._lines.append(f"{replica.id}: snapshot {words.of_end(replica.log.snapshots()[-1].id)}")

    def _clean(self, arguments: list[str]) -> None:
        """`clean 1`: let the log begin with the newest snapshot."""
        replica = self._replica(arguments)
        replica.clean(replica.log.snapshots()[-1].id)
        self._lines.append(f"{replica.id}: the log begins at {replica.log.start_offset}")

    def _damage(self, arguments: list[str]) -> None:
        """`damage 3`: the disk changes a byte of the next slice that the replica keeps."""
        replica = self._replica(arguments)

        def damage(data: bytes) -> bytes:
            replica.damage = lambda data: data
            return bytes([data[0] ^ 1]) + data[1:]

        replica.damage = damage

    def _ask_snapshot(self, arguments: list[str]) -> None:
        """`ask-snapshot 1 from=2 epoch=3 id=5@2 [position=0] [bytes=50] [cluster=x]`: ask by hand, see the answer."""
        replica, options = self._replica(arguments), _options(arguments[1:])
        offset, _, epoch = options["id"].partition("@")
        request = FetchSnapshotRequest(
            options.get("cluster"),
            ReplicaKey(int(options["from"])),
            int(options["epoch"]),
            OffsetAndEpoch(int(offset), int(epoch)),
            int(options.get("position", 0)),
            int(options.get("bytes", 50)),
        )
        self._ask(replica, request.replica.id, request)

    def _ask_vote(self, arguments: list[str]) -> None:
        """`ask-vote 1 from=2 epoch=3 log=5@2 [pre]`: ask a replica by hand, and see only its answer."""
        replica, options = self._replica(arguments), _options(arguments[1:])
        offset, _, log_epoch = options["log"].partition("@")
        candidate, epoch = ReplicaKey(int(options["from"])), int(options["epoch"])
        end = OffsetAndEpoch(int(offset), int(log_epoch))
        request = VoteRequest(None, None, candidate, epoch, end, "pre" in arguments)
        self._ask(replica, candidate.id, request)

    def _add_voter(self, arguments: list[str]) -> None:
        """`add-voter 1 4 [cluster=X] [endpoints=none]`: ask 1 to make 4 a voter, with the directory that it has."""
        replica, options = self._replica(arguments), _options(arguments)
        new = self.replicas[int(arguments[1])]
        endpoints = () if "endpoints" in options else new.endpoints
        self._request(replica, AddVoterRequest(options.get("cluster", "cluster"), new.key, endpoints))

    def _remove_voter(self, arguments: list[str]) -> None:
        """`remove-voter 1 3 [directory=A] [cluster=X]`: ask 1 to remove 3, by its id alone or with the directory."""
        replica, options = self._replica(arguments), _options(arguments)
        key = key_of(int(arguments[1]), options.get("directory"))
        self._request(replica, RemoveVoterRequest(options.get("cluster", "cluster"), key))

    def _request(self, replica: SimulatedReplica, request: Request) -> None:
        self._act(replica, lambda: replica.receive(Envelope(CLIENT, replica.id, -1, 0, request)))

    def _wipe(self, arguments: list[str]) -> None:
        """`wipe 3`: the disk is lost while it is down; the next one has the next letter for a directory id."""
        self._replica(arguments).wipe()

    def _move(self, arguments: list[str]) -> None:
        """`move 3`: from its next start on it listens at the next port."""
        self._replica(arguments).port += 1

    def _ask(self, replica: SimulatedReplica, asker: int, request: Request) -> None:
        replica.receive(Envelope(asker, replica.id, -1, 0, request))
        while self._finish_disk_work(replica, quietly=True):
            pass
        for envelope in [*replica.outbox, *self.messages]:
            if envelope.correlation_id == -1:
                self._lines.append(words.of_envelope(envelope))
        replica.outbox.clear()
        self.messages = [envelope for envelope in self.messages if envelope.correlation_id != -1]

    # What there is

    def _show(self, arguments: list[str]) -> None:
        """`show [1 2]`: roles, election states, ends of logs."""
        for node_id in map(int, arguments or map(str, self.replicas)):
            self._lines.append(words.of_state(self.replicas[node_id]))

    def _voters(self, arguments: list[str]) -> None:
        """`voters [1 2]`: the voter sets in force by their logs."""
        for node_id in map(int, arguments or map(str, self.replicas)):
            self._lines.append(f"{node_id}: {words.of_voters(self.replicas[node_id].known_voters())}")

    def _log(self, arguments: list[str]) -> None:
        """`log [1 2]`: the records."""
        for node_id in map(int, arguments or map(str, self.replicas)):
            log = self.replicas[node_id].log
            shown = [f"snapshot {words.of_end(info.id)}" for info in log.snapshots()]
            shown += [
                f"{offset}@{record.epoch} {words.of_record(record)}"
                for offset, record in enumerate(log.records, log.start_offset)
            ]
            self._lines.append(f"{node_id}: {', '.join(shown) or 'empty'}")

    def _pending(self, arguments: list[str]) -> None:
        """`pending`: the messages on their way."""
        self._lines.extend(words.of_envelope(envelope) for envelope in self.messages)

    # Steps

    def _replica(self, arguments: list[str]) -> SimulatedReplica:
        return self.replicas[int(arguments[0])]

    def _act(self, replica: SimulatedReplica, act: Callable[[], object]) -> None:
        act()
        for effect in replica.effects:
            if not isinstance(effect, SendRequest | Reply):
                self._lines.append(f"{replica.id}: {words.of_effect(effect)}")
        for envelope in replica.outbox:
            self._lines.append(f"  {words.of_envelope(envelope)}")
        self.messages += [envelope for envelope in replica.outbox if envelope.target != CLIENT]
        replica.outbox.clear()

    def _pass(self, envelope: Envelope) -> None:
        self.messages.remove(envelope)
        target = self.replicas[envelope.target]
        if target.is_up:
            self._lines.append(f"> {words.of_envelope(envelope)}")
            self._act(target, lambda: target.receive(envelope))

    def _finish_disk_work(self, replica: SimulatedReplica, *, quietly: bool = False) -> bool:
        """Finish a write or else a flush; False when there is none."""
        if replica.to_write is not None:
            replica.begin_write()
            return self._finish(replica, "quorum-state is written", replica.finish_write, quietly)
        if replica.is_up and replica.log.flushed_offset < replica.log.end_offset:
            if replica.log.flushing_to is None:
                replica.begin_flush()
            return self._finish(replica, "the log is flushed", replica.finish_flush, quietly)
        if replica.checking:
            return self._finish(replica, "the snapshot is checked", replica.finish_check, quietly)
        return False

    def _finish(self, replica: SimulatedReplica, what: str, finish: Callable[[], None], quietly: bool) -> bool:
        kept = len(self._lines)
        self._lines.append(f"{replica.id}: {what}")
        self._act(replica, finish)
        if quietly:
            del self._lines[kept:]
        return True


def _options(arguments: list[str]) -> dict[str, str]:
    return dict(argument.split("=", 1) for argument in arguments if "=" in argument)
