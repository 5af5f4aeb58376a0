"""The commands of a scenario: their effect on the `stage`, and their output."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from klamm.raft.config import RaftConfig
from klamm.raft.election.election_state import ElectionState
from klamm.raft.election.role_states import Leader
from klamm.raft.events import KraftUpgradeRequested, PeerCrashed, PeerRefused, ResignRequested, ShutdownRequested
from klamm.raft.messages import (
    AddVoterRequest,
    Error,
    RemoveVoterRequest,
    Request,
)
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, VoterSet
from klamm.testing.simulator import descriptions as words
from klamm.testing.simulator import memory_snapshot, wiping
from klamm.testing.simulator import scripted_requests as by_hand
from klamm.testing.simulator.envelope import Envelope
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.lost_records import damage_log
from klamm.testing.simulator.operator import CLIENT
from klamm.testing.simulator.replica_data import format_first_voters
from klamm.testing.simulator.simulated_replica import SimulatedReplica
from klamm.testing.simulator.stage import Stage

AGREE_MS_MAX = 30_000


class ScenarioError(Exception):
    """A command that is not possible in the current state."""


class Commands:
    """The commands of scenarios, by the first word of a line."""

    def __init__(self) -> None:
        self._stage = Stage()
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
            "fail": self._fail,
            "cut": self._cut_off,
            "heal": self._heal,
            "change": self._change,
            "settle": self._settle,
            "propose": self._propose,
            "resign": self._resign,
            "upgrade": self._upgrade,
            "shutdown": self._shutdown,
            "crash": self._crash,
            "doom": self._doom,
            "detect-crash": self._detect_crash,
            "refused": self._refused,
            "snapshot": self._snapshot,
            "clean": self._clean,
            "damage": self._damage,
            "ask": self._ask_by_hand,
            "ask-vote": self._ask_vote,
            "ask-snapshot": self._ask_snapshot,
            "add-voter": self._add_voter,
            "remove-voter": self._remove_voter,
            "lose-records": self._lose_records,
            "wipe": self._wipe,
            "move": self._move,
            "voters": self._voters,
            "show": self._show,
            "log": self._log,
            "pending": self._pending,
            "agree": self._agree,
        }

    def run(self, commands: Sequence[str]) -> str:
        """Execute the commands; returns their output.

        One that ends with `quietly` prints nothing. Raises ScenarioError, InvariantViolatedError, and ValueError of a
        log that refuses an operation.
        """
        self._stage.lines = []
        for command in commands:
            name, *arguments = command.split()
            if name not in self._commands:
                raise ScenarioError(f"unknown command {name}")
            kept = len(self._stage.lines)
            self._commands[name](arguments)
            if "quietly" in arguments:
                del self._stage.lines[kept:]
        return "\n".join(self._stage.lines) or "ok"

    # Setting up

    def _quorum(self, arguments: list[str]) -> None:
        """`quorum 1 2 3 [observers 4] [dynamic=yes] [auto-join=yes]`: new replicas, all down, with empty logs.

        `directories=yes`: static voters with directory ids and endpoints. `fetch-bytes=1`, `snapshot-bytes=50`: of an
        answer. Dynamic: the voters were formatted with all of their names and directories A, the observers with none.
        """
        self._stage.clear()
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
            self._stage.clocks_ms[node_id] = 0
            clock = partial(self._stage.clocks_ms.__getitem__, node_id)
            directory = "A" if is_dynamic or "directories" in options else None
            self._stage.replicas[node_id] = SimulatedReplica(
                node_id, voter_set, config, clock, directory=directory, luck=lambda: False
            )
        if is_dynamic:
            format_first_voters([self._stage.replicas[voter_id] for voter_id in voter_ids])

    def _stored(self, arguments: list[str]) -> None:
        """`stored 1 epoch=5 leader=2 voted=3`: the content of quorum-state."""
        options = _options(arguments[1:])
        leader, voted = options.get("leader"), options.get("voted")
        voted_key = ReplicaKey(int(voted)) if voted else None
        self._replica(arguments).store(ElectionState(int(options["epoch"]), int(leader) if leader else None, voted_key))

    def _records(self, arguments: list[str]) -> None:
        """`records 1 1 1 2`: append flushed records of these epochs, a batch each."""
        replica = self._replica(arguments)
        for epoch in map(int, arguments[1:]):
            replica.log.append([b"%d/%d" % (epoch, replica.log.end_offset)], epoch, 0)
        replica.log.flushed_offset = replica.log.end_offset
        replica.extend_chains()

    # What happens

    def _start(self, arguments: list[str]) -> None:
        """`start 1 2`: start processes; the seed of replica n is n."""
        for node_id in map(int, _without_quietly(arguments)):
            replica = self._stage.replicas[node_id]
            self._stage.act(replica, partial(replica.start, node_id))

    def _wait(self, arguments: list[str]) -> None:
        """`wait 500 [quietly]`: let ms pass for all replicas; with `quietly`, messages are delivered every 100 ms."""
        if "quietly" not in arguments:
            self._stage.pass_time(int(arguments[0]))
            return
        for _ in range(int(arguments[0]) // 100):
            self._stage.pass_time(100)
            self._stage.settle()

    def _timeout(self, arguments: list[str]) -> None:
        """`timeout 1`: advance the clock of that replica only to the deadline of its role."""
        replica = self._replica(arguments)
        state = replica.running.replica.state
        deadline_ms = state.check_quorum_deadline_ms if isinstance(state, Leader) else state.deadline_ms
        self._stage.clocks_ms[replica.id] = max(self._stage.clocks_ms[replica.id], deadline_ms)
        self._stage.act(replica, replica.tick)

    def _disk(self, arguments: list[str]) -> None:
        """`disk [1 2] [only=quorum-state]`: finish the writes, flushes and checks of these replicas, of all by default.

        `only`: quorum-state, log or snapshot.
        """
        only = _options(arguments).get("only")
        named = [argument for argument in _without_quietly(arguments) if "=" not in argument]
        for node_id in map(int, named or map(str, self._stage.replicas)):
            while self._stage.finish_disk_work(self._stage.replicas[node_id], only):
                pass

    def _deliver(self, arguments: list[str]) -> None:
        """`deliver [1 2] [from=3] [of=Fetch]`: deliver messages to these replicas, from that one, of that API."""
        for envelope in self._chosen(arguments):
            self._stage.deliver(envelope)

    def _lose(self, arguments: list[str]) -> None:
        """`lose [1 2] [from=3] [of=Vote]`: lose messages in flight without notifying the senders."""
        for envelope in self._chosen(arguments):
            self._stage.messages.remove(envelope)
            self._stage.lines.append(f"lost: {words.of_envelope(envelope)}")

    def _fail(self, arguments: list[str]) -> None:
        """`fail [1 2] [from=3] [of=Vote]`: messages in flight are lost; their senders are notified."""
        for envelope in self._chosen(arguments):
            self._stage.messages.remove(envelope)
            self._stage.lines.append(f"failed: {words.of_envelope(envelope)}")
            asker = self._stage.replicas[envelope.source if envelope.response is None else envelope.target]
            self._stage.act(asker, lambda asker=asker, envelope=envelope: asker.fail_request(envelope))  # type: ignore[misc]

    def _chosen(self, arguments: list[str]) -> list[Envelope]:
        """The messages in flight that these arguments select."""
        options = _options(arguments)
        named = [int(argument) for argument in _without_quietly(arguments) if "=" not in argument]
        return [
            envelope
            for envelope in self._stage.messages
            if (not named or envelope.target in named)
            and int(options.get("from", envelope.source)) == envelope.source
            and options.get("of", words.name_of(envelope)) == words.name_of(envelope)
        ]

    def _cut_off(self, arguments: list[str]) -> None:
        """`cut 3 [from=1]`: drop all messages between 3 and the others, or between these two, from now on."""
        stage, one, options = self._stage, int(arguments[0]), _options(arguments)
        others = [int(options["from"])] if "from" in options else [other for other in stage.replicas if other != one]
        stage.cut |= {pair for other in others for pair in ((one, other), (other, one))}
        stage.messages = [message for message in stage.messages if (message.source, message.target) not in stage.cut]

    def _heal(self, arguments: list[str]) -> None:
        """`heal`: deliver all messages again."""
        self._stage.cut = set()

    def _change(self, arguments: list[str]) -> None:
        """`change 3 [from=1] [of=Fetch] diverging=2@1`: replace the response in flight by an invalid one."""
        options = _options(arguments)
        fields: dict[str, Any] = {name: _value(text) for name, text in options.items() if name not in ("from", "of")}
        named = self._chosen([argument for argument in arguments if argument.split("=")[0] not in fields])
        chosen = [envelope for envelope in named if envelope.response is not None]
        for envelope in chosen:
            response: Any = envelope.response
            changed = envelope._replace(response=replace(response, **fields))
            self._stage.messages[self._stage.messages.index(envelope)] = changed
            self._stage.lines.append(f"changed: {words.of_envelope(changed)}")
        if not chosen:
            self._stage.lines.append("no answer is on its way")

    def _settle(self, arguments: list[str]) -> None:
        """`settle`: finish disk work and deliver messages until none are left."""
        self._stage.settle()

    def _propose(self, arguments: list[str]) -> None:
        """`propose 1 text [more]`: append these records at a leader as a batch; nothing if it is not the leader."""
        replica = self._replica(arguments)
        if not replica.can_append:
            self._stage.lines.append(f"{replica.id} does not lead")
            return
        self._stage.act(replica, lambda: replica.propose([text.encode() for text in arguments[1:]]))

    def _resign(self, arguments: list[str]) -> None:
        """`resign 1 [epoch=2]`: the leader resigns from that epoch, by default its own."""
        replica, options = self._replica(arguments), _options(arguments)
        self._stage.act(replica, lambda: replica.step(ResignRequested(int(options.get("epoch", replica.epoch)))))

    def _upgrade(self, arguments: list[str]) -> None:
        """`upgrade 1`: request kraft.version 1 from the leader."""
        replica = self._replica(arguments)
        refusal = replica.running.kraft_upgrade_refusal()
        if refusal is not None:
            self._stage.lines.append(f"{replica.id}: refused: {refusal}")
        self._stage.act(replica, lambda: replica.step(KraftUpgradeRequested()))

    def _shutdown(self, arguments: list[str]) -> None:
        """`shutdown 1 [untold]`: stop the node; `untold`: a request is read in the same turn before it reacts."""
        replica = self._replica(arguments)
        if "untold" in arguments:
            replica.running.on_shutdown(replica.now_ms())
        else:
            self._stage.act(replica, lambda: replica.step(ShutdownRequested()))

    def _crash(self, arguments: list[str]) -> None:
        """`crash 1 [keep=N]`: kill the process; with `keep`, power fails and N unflushed records survive."""
        replica, options = self._replica(arguments), _options(arguments[1:])
        self._stage.end_life(replica, int(options["keep"]) if "keep" in options else None)

    def _doom(self, arguments: list[str]) -> None:
        """`doom 1 effects=2`: in its next step the process dies after it has carried out so many effects."""
        self._replica(arguments).crash_after_effects = int(_options(arguments)["effects"])

    def _detect_crash(self, arguments: list[str]) -> None:
        """`detect-crash 1 at=2`: 1 closed its connection with 2 and refuses a new one."""
        replica = self._stage.replicas[int(_options(arguments)["at"])]
        self._stage.act(replica, lambda: replica.step(PeerCrashed(int(arguments[0]))))

    def _refused(self, arguments: list[str]) -> None:
        """`refused 1 at=2`: 2, never connected to 1 before, is refused at 1's endpoint."""
        replica = self._stage.replicas[int(_options(arguments)["at"])]
        self._stage.act(replica, lambda: replica.step(PeerRefused(int(arguments[0]))))

    def _snapshot(self, arguments: list[str]) -> None:
        """`snapshot 1`: write what is committed as a snapshot of 100 bytes."""
        replica = self._replica(arguments)
        if not replica.applied:
            self._stage.lines.append(f"{replica.id}: nothing is committed")
            return
        replica.begin_snapshot(bytes([replica.id]) * (100 - memory_snapshot.SIZE_MIN))
        replica.finish_snapshot()
        self._stage.lines.append(f"{replica.id}: snapshot {words.of_end(replica.log.snapshots()[-1].id)}")

    def _clean(self, arguments: list[str]) -> None:
        """`clean 1`: start the log at the newest snapshot."""
        replica = self._replica(arguments)
        if not replica.log.snapshots():
            self._stage.lines.append(f"{replica.id}: has no snapshot")
            return
        replica.clean(replica.log.snapshots()[-1].id)
        self._stage.lines.append(f"{replica.id}: the log begins at {replica.log.start_offset}")

    def _damage(self, arguments: list[str]) -> None:
        """`damage 3`: the disk changes a byte of the next stored slice; in the first slice, of the state."""
        replica = self._replica(arguments)

        def damage(data: bytes) -> bytes:
            replica.damage = lambda data: data
            at = min(memory_snapshot.STATE_AT, len(data) - 1)
            return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

        replica.damage = damage

    def _ask_by_hand(self, arguments: list[str]) -> None:
        """`ask 1 Fetch from=3 epoch=2 log=5@2`: send a request to a replica, and print its response and effects.

        Vote with `pre=yes`, FetchSnapshot with `id=5@2 position=0`, BeginQuorumEpoch, EndQuorumEpoch, AddRaftVoter,
        UpdateRaftVoter; `cluster=X`, `directory=B` of the sender, `to=1-A`, and other options of `scripted_requests`.
        `hold=yes`: do not finish the disk work for which the response waits.
        """
        replica, options = self._replica(arguments), _options(arguments[2:])
        request = by_hand.request_of(arguments[1], options)
        if "hold" in options:
            self._stage.act(
                replica, lambda: replica.receive(Envelope(int(options["from"]), replica.id, -1, 0, request))
            )
        else:
            self._stage.ask(replica, int(options["from"]), request)

    def _ask_snapshot(self, arguments: list[str]) -> None:
        """`ask-snapshot 1 from=2 epoch=3 id=5@2 [position=0] [bytes=50] [cluster=x]`: `ask 1 FetchSnapshot`."""
        self._ask_by_hand([arguments[0], "FetchSnapshot", *arguments[1:]])

    def _ask_vote(self, arguments: list[str]) -> None:
        """`ask-vote 1 from=2 epoch=3 log=5@2 [pre]`: `ask 1 Vote`."""
        pre = ["pre=yes"] if "pre" in arguments else []
        self._ask_by_hand([arguments[0], "Vote", *arguments[1:], *pre])

    def _add_voter(self, arguments: list[str]) -> None:
        """`add-voter 1 4 [cluster=X] [endpoints=none]`: ask 1 to make 4 a voter, with its current directory."""
        replica, options = self._replica(arguments), _options(arguments)
        new = self._stage.replicas[int(arguments[1])]
        endpoints = () if "endpoints" in options else new.endpoints
        self._request(replica, AddVoterRequest(options.get("cluster", "cluster"), new.key, endpoints))

    def _remove_voter(self, arguments: list[str]) -> None:
        """`remove-voter 1 3 [directory=A] [cluster=X]`: ask 1 to remove 3, by its id alone or with the directory."""
        replica, options = self._replica(arguments), _options(arguments)
        key = by_hand.key_of(int(arguments[1]), options.get("directory"))
        self._request(replica, RemoveVoterRequest(options.get("cluster", "cluster"), key))

    def _request(self, replica: SimulatedReplica, request: Request) -> None:
        self._stage.act(replica, lambda: replica.receive(Envelope(CLIENT, replica.id, -1, 0, request)))

    def _lose_records(self, arguments: list[str]) -> None:
        """`lose-records 2 keep=1`: damage the log of a stopped replica: only one of the flushed records survives."""
        replica = self._replica(arguments)
        damage_log(replica, int(_options(arguments)["keep"]))
        self._stage.lines.append(
            f"{replica.id}: the log ends at {replica.log.end_offset}, and held {words.of_end(replica.log.proven_end)}"
        )

    def _wipe(self, arguments: list[str]) -> None:
        """`wipe 3`: give a stopped replica an empty disk with the next letter, if the quorum survives that."""
        replica = self._replica(arguments)
        is_static = replica.known_voters().kraft_version == 0
        if is_static and not wiping.may_be_wiped(self._stage.replicas, replica, self._stage.history):
            self._stage.lines.append(f"{replica.id} keeps its disk: static voters would not survive its loss")
            return
        replica.wipe()

    def _move(self, arguments: list[str]) -> None:
        """`move 3`: it listens at the next port from its next start on."""
        self._replica(arguments).next_port += 1

    # Output

    def _show(self, arguments: list[str]) -> None:
        """`show [1 2]`: roles, election states, log ends."""
        for node_id in map(int, arguments or map(str, self._stage.replicas)):
            self._stage.lines.append(words.of_state(self._stage.replicas[node_id]))

    def _voters(self, arguments: list[str]) -> None:
        """`voters [1 2]`: the voter sets in force by their logs."""
        for node_id in map(int, arguments or map(str, self._stage.replicas)):
            self._stage.lines.append(f"{node_id}: {words.of_voters(self._stage.replicas[node_id].known_voters())}")

    def _log(self, arguments: list[str]) -> None:
        """`log [1 2]`: the records."""
        for node_id in map(int, arguments or map(str, self._stage.replicas)):
            log = self._stage.replicas[node_id].log
            shown = [f"snapshot {words.of_end(info.id)}" for info in log.snapshots()]
            shown += [
                f"{offset}@{record.epoch} {words.of_record(record)}"
                for offset, record in enumerate(log.records, log.start_offset)
            ]
            self._stage.lines.append(f"{node_id}: {', '.join(shown) or 'empty'}")

    def _pending(self, arguments: list[str]) -> None:
        """`pending`: the messages in flight."""
        self._stage.lines.extend(words.of_envelope(envelope) for envelope in self._stage.messages)

    def _agree(self, arguments: list[str]) -> None:
        """`agree`: end all faults, start stopped replicas; one must lead, and all must receive what it commits."""
        stage = self._stage
        kept, stage.cut = len(stage.lines), set()
        self._start([str(replica.id) for replica in stage.replicas.values() if not replica.is_up])
        asked: tuple[int, int, int] | None = None  # leader, its epoch, the offset
        for _ in range(AGREE_MS_MAX // 100):
            stage.settle()
            leaders = [replica for replica in stage.replicas.values() if replica.can_append]
            if len(leaders) == 1 and (asked is None or asked[:2] != (leaders[0].id, leaders[0].epoch)):
                asked = (leaders[0].id, leaders[0].epoch, leaders[0].log.end_offset)
                self._propose([str(leaders[0].id), "agreed"])
                stage.settle()
            if asked is not None and all(replica.high_watermark > asked[2] for replica in stage.replicas.values()):
                break
            stage.pass_time(100)
        else:
            states = "; ".join(words.of_state(replica) for replica in stage.replicas.values())
            raise InvariantViolatedError(f"no agreement after all faults ended: {states}")
        del stage.lines[kept:]
        stage.lines.append(f"all agree: {asked[0]} leads, and {asked[2] + 1} records are committed")

    # Arguments

    def _replica(self, arguments: list[str]) -> SimulatedReplica:
        return self._stage.replicas[int(arguments[0])]


def _without_quietly(arguments: list[str]) -> list[str]:
    return [argument for argument in arguments if argument != "quietly"]


def _options(arguments: list[str]) -> dict[str, str]:
    return dict(argument.split("=", 1) for argument in arguments if "=" in argument)


def _value(text: str) -> object:
    """`3`, `-1`, `5@2` for an end of a log, `0..1` for a range, or the name of an error."""
    if "@" in text:
        return by_hand.end_of(text)
    if ".." in text:
        low, _, high = text.partition("..")
        return int(low), int(high)
    return Error[text] if text.isupper() else int(text)
