"""One simulated replica: the real core over a log and a quorum-state that can be lost, its I/O waiting to be let go.

It does to the core what `klamm.raft.driver` does, but every write, flush and message stays pending until the one who
plays (the world with its dice, a scenario with its commands) finishes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, assert_never

from klamm.raft import effects as fx
from klamm.raft import events
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.control_records import KRAFT_VERSION, KRAFT_VOTERS, decode_kraft_version, decode_voters, snapshot_head
from klamm.raft.election_state import ElectionState
from klamm.raft.log import ControlRecord, OffsetAndEpoch, SnapshotInfo
from klamm.raft.messages import ApiVersionsRequest, ApiVersionsResponse, Error, Request, Response
from klamm.raft.node import RaftNode
from klamm.raft.reading import with_bytes
from klamm.raft.roles import Role
from klamm.raft.voters import (
    BOOTSTRAP_OFFSET,
    KRAFT_VERSION_MAX,
    KRAFT_VERSION_MIN,
    Endpoint,
    ReplicaKey,
    Voter,
    VoterSet,
    VotersInLog,
)
from klamm.testing.simulator import memory_snapshot
from klamm.testing.simulator.by_hand import key_of
from klamm.testing.simulator.crashing import CrashedError
from klamm.testing.simulator.memory_log import MemoryLog

TICKS_AT_ONCE_MAX = 1000
CLUSTER = "cluster"
PORT = 9093  # where it listens until it moves

_decode_voters = lru_cache(maxsize=256)(decode_voters)


class Envelope(NamedTuple):
    """A message on its way. `life` is the sender's life of a request, and the asker's of a response."""

    source: int
    target: int
    correlation_id: int
    life: int
    request: Request
    response: Response | None = None  # None: this is the request itself
    port: int | None = None  # that the request goes to; None: wherever the receiver listens

    def answered(self, response: Response) -> "Envelope":
        """The answer to this request, on its way back."""
        return Envelope(self.target, self.source, self.correlation_id, self.life, self.request, response)


@dataclass(frozen=True, slots=True)
class LostDisk:
    """What a disk held when it was lost: its replica never comes back under that key."""

    key: ReplicaKey
    log: MemoryLog
    chains: list[int | None]


class SimulatedReplica:
    """A replica that can crash and start again over what its disk kept.

    `chains` has for each record a hash over it and all before it: two logs agree below an offset when these do. It is
    None below the last record of a snapshot that was fetched. The same hash is the state of the state machine, which
    folds what is committed and nothing else.
    """

    def __init__(
        self,
        node_id: int,
        voters: VoterSet,
        config: RaftConfig,
        now_ms: Callable[[], int],
        *,
        directory: str | None = None,
    ) -> None:
        """`directory` is the letter of its directory id, of which each wiped disk has the next; None: it has none."""
        self.id = node_id
        self.voters = voters
        self.is_voter = node_id in voters.ids
        self.directory = directory
        self.port = self.next_port = PORT  # where it listens, and with its next start
        self.is_host_up = True  # so that its host refuses connections while the process is gone
        self.is_stopping = self.has_handed_over = False
        self.lost: list[LostDisk] = []
        self.before_damage: LostDisk | None = None  # what its log held, which the files that are left prove
        self.config = config
        self.now_ms = now_ms
        self.log = self._new_log()
        self.stored: ElectionState | None = None
        self.core: RaftNode | None = None
        self.life = 0
        self.wipes = 0
        self.installed_count = 0  # snapshots, over all lives
        self.chains: list[int | None] = []
        self.applied = 0  # the state machine: how far, and the fold over all records below
        self.state = 0
        self.loaded_at_start = 0  # from the newest snapshot
        self.announced: tuple[int, int] | None = None  # the last epoch it was told to lead, and what it had applied
        self.outbox: list[Envelope] = []
        self.effects: list[fx.Effect] = []  # those of the last step, for who watches
        self.writing: fx.PersistElection | None = None
        self.to_write: fx.PersistElection | None = None
        self.crash_after_effects: int | None = None
        self.damage: Callable[[bytes], bytes] = lambda data: data  # what the disk makes of a slice
        self.checking: list[int] = []  # attempts whose snapshots are being checked, as the log's checks
        self.checks_to_end = 0  # of them, those for which nobody has drawn yet how long they take
        self.snapshotting: tuple[OffsetAndEpoch, bytes] | None = None
        # What its log said of the voters when it held that snapshot and a last control record with that chain.
        self._known_voters: tuple[tuple[OffsetAndEpoch | None, int | None], VotersInLog] | None = None
        self._held: list[fx.SendRequest | fx.Reply] = []
        self._asked: dict[int, Envelope] = {}
        self._next_request_id = 0

    # What it is

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self.core is not None

    @property
    def key(self) -> ReplicaKey:
        """Its node id and the directory that it has, or would start with."""
        return key_of(self.id, self.directory)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where it says that it listens; a message finds it by the host's name alone."""
        return (Endpoint("CONTROLLER", f"node-{self.id}", self.port),) if self.directory is not None else ()

    def is_reached_by(self, envelope: Envelope) -> bool:
        """Whether it runs and has that port now; an answer comes by the connection of its request."""
        return self.is_up and (envelope.response is not None or envelope.port in (None, self.port))

    @property
    def running(self) -> RaftNode:
        """The core; only while it runs."""
        if self.core is None:
            raise RuntimeError(f"replica {self.id} is down")
        return self.core

    @property
    def role(self) -> Role | None:
        """Its role, None while it is down."""
        return self.core.replica.state.ROLE if self.core is not None else None

    @property
    def epoch(self) -> int:
        """The epoch it knows, or had on disk while it is down."""
        if self.core is not None:
            return self.core.replica.election.epoch
        return self.stored.epoch if self.stored is not None else 0

    @property
    def high_watermark(self) -> int:
        """What it knows to be committed in this life, -1 for nothing."""
        return self.core.replica.high_watermark if self.core is not None else -1

    def look(self) -> tuple[object, ...]:
        """All that an invariant sees of it, but for its messages: where two looks are equal, so are the verdicts."""
        log, chains, core = self.log, self.chains, self.core
        inside: tuple[object, ...] | None = None
        if core is not None:
            replica = core.replica
            looks = (replica.election.epoch, replica.durable_ticket, replica.high_watermark, replica.voters_in_log)
            inside = (replica.state.ROLE, *looks)
        return (
            inside,
            log.end_offset,
            len(chains),
            chains[-1] if chains else None,
            log.start_offset,
            log.flushed_offset,
            self.applied,
            self.state,
            self.life,
            self.wipes,
            self.announced,
            self.crash_after_effects,
        )

    # What happens to it

    def start(self, seed: int) -> None:
        """Begin a life over what the disk kept."""
        self.life += 1
        self.port = self.next_port
        identity = Identity(self.key, CLUSTER, self.endpoints)
        self.core = RaftNode(identity, VotersInLog(self.voters), self.config, self.log, seed)
        self._load_latest_snapshot()
        self.loaded_at_start = self.applied
        self.step(events.Started(self.stored))

    def step(self, event: events.Event) -> None:
        """Give the core an event, and the ticks that are due then. May raise CrashedError: then call `crash`."""
        now_ms, self.effects = self.now_ms(), []
        self._carry_out(now_ms, events.happen(self.running, now_ms, event))

    def tick(self) -> None:
        """The clock has reached the core's deadline, or jumped. May raise CrashedError."""
        now_ms, self.effects = self.now_ms(), []
        self._carry_out(now_ms, self.running.on_tick(now_ms))

    def _carry_out(self, now_ms: int, effects: list[fx.Effect]) -> None:
        """Do what the core wants, and tick it as its driver does."""
        core = self.running
        self._apply_all(effects)
        for _ in range(TICKS_AT_ONCE_MAX):
            if core.deadline_ms > now_ms:
                return
            self._apply_all(core.on_tick(now_ms))
        raise AssertionError(f"replica {self.id} is due without end")

    def receive(self, envelope: Envelope) -> None:
        """Take a message from the network."""
        if isinstance(envelope.request, ApiVersionsRequest) and envelope.response is None:
            versions = ApiVersionsResponse(Error.NONE, (KRAFT_VERSION_MIN, KRAFT_VERSION_MAX))
            self.effects = []
            self.outbox.append(envelope.answered(versions))
        elif envelope.response is None:
            self._next_request_id += 1
            self._asked[self._next_request_id] = envelope
            now_ms, self.effects = self.now_ms(), []
            self._carry_out(now_ms, self.running.on_request(now_ms, self._next_request_id, envelope.request))
        elif envelope.life == self.life:  # a connection does not outlive its process
            now_ms, self.effects = self.now_ms(), []
            self._carry_out(now_ms, self.running.on_response(now_ms, envelope.correlation_id, envelope.response))

    def fail_request(self, envelope: Envelope) -> None:
        """The connection of a request it sent is gone."""
        if envelope.life == self.life:
            self.step(events.RequestFailed(envelope.correlation_id))

    def propose(self, values: list[bytes]) -> int | None:
        """Append a batch as a leader's driver does; returns its last offset."""
        self.effects = []
        offset = self.log.append(values, self.epoch, 0)
        self.extend_chains()
        now_ms = self.now_ms()
        self._carry_out(now_ms, self.running.on_append(now_ms))
        return offset

    @property
    def can_append(self) -> bool:
        """Whether it takes proposals."""
        return self.running.can_append

    @property
    def deadline_ms(self) -> int:
        """When it is to be ticked."""
        return self.running.deadline_ms

    def has_acknowledged(self, offset: int) -> bool:
        """Whether who proposed that record is told that it is committed."""
        return offset < self.high_watermark

    def begin_disk_work(self) -> list[Callable[[], None]]:
        """Begin the writes, checks and flushes that are due; what ends each of them."""
        found: list[Callable[[], None]] = []
        if self.to_write is not None and self.writing is None:
            self.begin_write()
            found.append(self.finish_write)
        found += [self.finish_check] * self.checks_to_end
        self.checks_to_end = 0
        if self.log.flushed_offset < self.log.end_offset and self.log.flushing_to is None:
            self.begin_flush()
            found.append(self.finish_flush)
        return found

    def fetch_as_much_as_possible(self) -> None:
        """Ask for as many bytes as Kafka does, from now on."""
        usual = RaftConfig()
        self.config = self.config._replace(
            fetch_max_bytes=usual.fetch_max_bytes, fetch_snapshot_max_bytes=usual.fetch_snapshot_max_bytes
        )
        if self.core is not None:
            self.core.replica.config = self.config

    def begin_write(self) -> None:
        """Begin to write the newest election state."""
        self.writing, self.to_write = self.to_write, None

    def finish_write(self) -> None:
        """The election state is on disk."""
        if self.writing is None:
            raise RuntimeError(f"replica {self.id} writes no election state")
        self.stored, ticket, self.writing = self.writing.state, self.writing.ticket, None
        self.step(events.Persisted(ticket))

    def begin_flush(self) -> None:
        """Begin to flush the log."""
        self.log.start_flush(lambda offset, error: None)

    def finish_flush(self) -> None:
        """What the log held when the flush began is durable."""
        self.log.finish_flush()
        now_ms, self.effects = self.now_ms(), []
        self._carry_out(now_ms, self.running.on_flushed(now_ms))

    def finish_check(self) -> None:
        """The oldest check of a received snapshot ends."""
        attempt, results = self.checking.pop(0), list[str | None]()
        self.log.checks[0] = (self.log.checks[0][0], results.append)
        self.log.finish_check()
        self.step(events.SnapshotChecked(attempt, results == [None]))

    def known_voters(self) -> VotersInLog:
        """The voter set in force by what its log holds, up or down; read again when its control records are others."""
        offsets = self.log.control_offsets
        read = (self.log.latest_snapshot_id, self.chains[offsets[-1]] if offsets else None)
        if self._known_voters is None or self._known_voters[0] != read:
            self._known_voters = read, self._read_voters()
        return self._known_voters[1]

    def _new_log(self) -> MemoryLog:
        return MemoryLog()

    def _read_voters(self) -> VotersInLog:
        known = VotersInLog(self.voters)
        for offset, kind, value in self.log.control_records():
            if kind == KRAFT_VERSION:
                known = known._replace(kraft_version=decode_kraft_version(value))
            elif kind == KRAFT_VOTERS:
                known = known._replace(voters=_decode_voters(value), offset=offset)
        return known

    def begin_snapshot(self, filler: bytes) -> None:
        """Take hold of what is committed now, to write it as a snapshot."""
        snapshot_id = OffsetAndEpoch(self.applied, self.log.epoch_at(self.applied - 1))
        controls = snapshot_head(self.running.replica.voter_history.below(self.applied))
        content = memory_snapshot.Content(snapshot_id, self.state, tuple(controls))
        self.snapshotting = (snapshot_id, memory_snapshot.encode(content, filler))

    def finish_snapshot(self) -> None:
        """The snapshot is on disk."""
        if self.snapshotting is None:
            raise RuntimeError(f"replica {self.id} writes no snapshot")
        (snapshot_id, data), self.snapshotting = self.snapshotting, None
        if snapshot_id.offset >= self.log.start_offset and self.log.snapshot_size(snapshot_id) is None:
            self.log.add_snapshot(SnapshotInfo(snapshot_id, len(data), 0), data)

    def clean(self, snapshot_id: OffsetAndEpoch) -> None:
        """Let the log begin at one of its snapshots."""
        self.log.delete_before(snapshot_id)

    def crash(self, keep_records: int | None, *, write_survives: bool) -> None:
        """End this life.

        `keep_records`: how many unflushed records a power cut leaves; None when only the process dies and the page
        cache stays. `write_survives`: whether an election state that was being written made it.
        """
        if write_survives and self.writing is not None:
            self.stored = self.writing.state
        self.core = self.writing = self.to_write = self.crash_after_effects = self.snapshotting = None
        self.checking, self.checks_to_end = [], 0
        self.is_stopping = self.has_handed_over = False
        if keep_records is not None:
            self.log.lose_unflushed(keep_records)
        end_offset = self.log.end_offset
        self.log.restart()
        if self.log.end_offset != end_offset:
            self._load_latest_snapshot()
            self.begin_chains_with_snapshot()
        del self.chains[self.log.end_offset :]
        self._held, self.outbox, self._asked, self.effects = [], [], {}, []

    def wipe(self) -> None:
        """Lose the disk, while it is down. The next one has another directory id."""
        if self.directory is not None:
            self.lost.append(LostDisk(self.key, self.log, self.chains))
            self.directory = chr(ord(self.directory) + 1)
        self.log, self.stored, self.chains = self._new_log(), None, []
        self.applied = self.state = 0
        self._known_voters = self.before_damage = None
        self.wipes += 1

    @property
    def is_dying(self) -> bool:
        """It crashes in the middle of an effect or between two: what it has in memory may not fit its disk any more."""
        return self.crash_after_effects is not None and self.crash_after_effects < 0

    # Effects

    def _apply_all(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if self.crash_after_effects is not None:
                self._maybe_crash()
            self.effects.append(effect)
            self._apply(effect)
        if self._held:
            self._release_held()

    def _maybe_crash(self) -> None:
        if self.crash_after_effects is not None:
            self.crash_after_effects -= 1
            if self.crash_after_effects < 0:
                raise CrashedError

    def _apply(self, effect: fx.Effect) -> None:
        match effect:  # the most frequent first
            case fx.SendRequest() | fx.Reply():
                self._held.append(effect)
            case fx.HighWatermarkAdvanced(offset):
                self._fold(offset)
            case fx.AppendFetched(batches, max_epoch):
                self.log.append_fetched(batches, max_epoch)
                self.extend_chains()
            case fx.PersistElection():
                self.to_write = effect
            case fx.AppendControl(epoch, records):
                self.log.append_control(records, epoch, 0)
                self.extend_chains()
            case fx.TruncateLog(offset):
                self.log.truncate_to(offset)
                del self.chains[offset:]
            case fx.AppendSnapshotSlice(snapshot_id, position, data):
                self.log.append_snapshot_slice(snapshot_id, position, self.damage(data))
            case fx.CheckSnapshot(_, attempt):
                self.log.check_received_snapshot(lambda error: None)
                self.checking.append(attempt)
                self.checks_to_end += 1
            case fx.InstallSnapshot(snapshot_id):
                self._install(snapshot_id)
            case fx.DropSnapshot():
                self.log.drop_received_snapshot()
            case fx.BecameLeader(epoch):
                self.announced = epoch, self.applied
            case fx.ShutdownCompleted():
                self.has_handed_over = True
            case fx.VotersChanged() | fx.LeaderChanged() | fx.LostLeadership():
                pass
            case _:
                assert_never(effect)

    def _install(self, snapshot_id: OffsetAndEpoch) -> None:
        self.log.finish_received_snapshot(snapshot_id)
        self._maybe_crash()  # the next start goes on from here
        self.log.truncate_to_latest_snapshot()
        self.installed_count += 1
        self.begin_chains_with_snapshot()
        self._load_latest_snapshot()

    def _load_latest_snapshot(self) -> None:
        self.applied, self.state = self._latest_snapshot()

    def _latest_snapshot(self) -> tuple[int, int]:
        latest = self.log.latest_snapshot_id
        content = None if latest is None else memory_snapshot.decode_unchecked(self.log.snapshot_bytes[latest])
        return (0, 0) if content is None else (content.id.offset, content.state)

    def begin_chains_with_snapshot(self) -> None:
        """Begin the chains where the log begins, with its newest snapshot."""
        offset, state = self._latest_snapshot()
        self.chains = [None] * (offset - 1) + [state]

    def _fold(self, offset: int) -> None:
        """Apply what is committed, as a node's listener does."""
        state, start = self.state, self.log.start_offset
        records = self.log.records[self.applied - start : offset - start]
        for record in records:
            state = hash((state, record))
        self.state, self.applied = state, self.applied + len(records)

    def extend_chains(self) -> None:
        """Go on with the chains where the log has grown."""
        chains = self.chains
        chain = chains[-1] if chains else 0
        for record in self.log.records[len(chains) - self.log.start_offset :]:
            chain = hash((chain, record))
            chains.append(chain)

    def _release_held(self) -> None:
        core, (held, self._held) = self.running, (self._held, [])
        for waiting in held:
            is_early = waiting.after > core.replica.durable_ticket
            effect = waiting if is_early else core.settled(waiting)
            if effect.after > core.replica.durable_ticket:
                self._held.append(effect)
            elif isinstance(effect, fx.SendRequest):
                self.post(effect)
            else:
                self._answer(effect)

    def post(self, effect: fx.SendRequest) -> None:
        """Give a request to the network."""
        target = effect.to if effect.to >= 0 else int(effect.endpoints[0].host.removeprefix("node-"))
        # A bootstrap server's name leads to where it listens; what the voters say of themselves may be old.
        port = effect.endpoints[0].port if effect.to >= 0 and effect.endpoints else None
        self.outbox.append(Envelope(self.id, target, effect.correlation_id, self.life, effect.request, port=port))

    def _answer(self, effect: fx.Reply) -> None:
        asked = self._asked.pop(effect.request_id)
        response = with_bytes(self.log, effect.response, effect.read)
        self.outbox.append(asked.answered(response))


def format_first_voters(replicas: list[SimulatedReplica]) -> None:
    """Give their directories the snapshot 0-0 that names them all (`--initial-controllers`)."""
    voters = VoterSet.of(Voter(replica.key, replica.endpoints) for replica in replicas)
    head = snapshot_head(VotersInLog(voters, BOOTSTRAP_OFFSET, 1))
    for replica in replicas:
        replica.log.snapshot_control = [ControlRecord(BOOTSTRAP_OFFSET, kind, value) for kind, value in head]
