"""One simulated replica: the real core over a log and a quorum-state that can be lost, its I/O waiting to be let go.

It does to the core what `klamm.raft.driver` does, but every write, flush and message stays pending until the one who
plays (the world with its dice, a scenario with its commands) finishes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from klamm.raft import effects as fx
from klamm.raft import events
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.election_state import ElectionState
from klamm.raft.messages import Request, Response
from klamm.raft.node import RaftNode
from klamm.raft.reading import with_bytes
from klamm.raft.roles import Role
from klamm.raft.voters import ReplicaKey, VoterSet, VotersInLog
from klamm.testing.simulator.memory_log import MemoryLog

TICKS_AT_ONCE_MAX = 1000


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message on its way. `life` is the sender's life of a request, and the asker's of a response."""

    source: int
    target: int
    correlation_id: int
    life: int
    request: Request
    response: Response | None = None  # None: this is the request itself


class CrashedError(Exception):
    """The replica was told to crash before this effect."""


class SimulatedReplica:
    """A replica that can crash and start again over what its disk kept.

    `chains` has for each record a hash over it and all before it: two logs agree below an offset when these do.
    """

    def __init__(self, node_id: int, voters: VoterSet, config: RaftConfig, now_ms: Callable[[], int]) -> None:
        self.id = node_id
        self.voters = voters
        self.is_voter = node_id in voters.ids
        self.config = config
        self.now_ms = now_ms
        self.log = MemoryLog()
        self.stored: ElectionState | None = None
        self.core: RaftNode | None = None
        self.life = 0
        self.chains: list[int] = []
        self.outbox: list[Envelope] = []
        self.effects: list[fx.Effect] = []  # those of the last step, for who watches
        self.writing: fx.PersistElection | None = None
        self.to_write: fx.PersistElection | None = None
        self.crash_after_effects: int | None = None
        self._held: list[fx.SendRequest | fx.Reply] = []
        self._asked: dict[int, Envelope] = {}
        self._next_request_id = 0

    # What it is

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self.core is not None

    @property
    def running(self) -> RaftNode:
        """The core; only while it runs."""
        if self.core is None:
            raise RuntimeError(f"replica {self.id} is down")
        return self.core

    @property
    def role(self) -> Role | None:
        """Its role, None while it is down."""
        return self.core.replica.role if self.core is not None else None

    @property
    def epoch(self) -> int:
        """The epoch it knows, or had on disk while it is down."""
        if self.core is not None:
            return self.core.replica.epoch
        return self.stored.epoch if self.stored is not None else 0

    @property
    def high_watermark(self) -> int:
        """What it knows to be committed in this life, -1 for nothing."""
        return self.core.replica.high_watermark if self.core is not None else -1

    # What happens to it

    def start(self, seed: int) -> None:
        """Begin a life over what the disk kept."""
        self.life += 1
        identity = Identity(ReplicaKey(self.id), "cluster")
        self.core = RaftNode(identity, VotersInLog(self.voters), self.config, self.log, seed)
        self.step(events.Started(self.stored))

    def step(self, event: events.Event) -> None:
        """Give the core an event, and the ticks that are due then. May raise CrashedError: then call `crash`."""
        core = self.running
        self.effects = []
        self._apply_all(events.happen(core, self.now_ms(), event))
        self.run_due_ticks()

    def tick(self) -> None:
        """The clock has reached the core's deadline, or jumped. May raise CrashedError."""
        self.step(events.Ticked())

    def run_due_ticks(self) -> None:
        """Tick the core as its driver does."""
        core = self.running
        for _ in range(TICKS_AT_ONCE_MAX):
            if core.deadline_ms > self.now_ms():
                return
            self._apply_all(core.on_tick(self.now_ms()))
        raise AssertionError(f"replica {self.id} is due without end")

    def receive(self, envelope: Envelope) -> None:
        """Take a message from the network."""
        if envelope.response is None:
            self._next_request_id += 1
            self._asked[self._next_request_id] = envelope
            self.step(events.RequestReceived(self._next_request_id, envelope.request))
        elif envelope.life == self.life:  # a connection does not outlive its process
            self.step(events.ResponseReceived(envelope.correlation_id, envelope.response))

    def fail_request(self, envelope: Envelope) -> None:
        """The connection of a request it sent is gone."""
        if envelope.life == self.life:
            self.step(events.RequestFailed(envelope.correlation_id))

    def propose(self, value: bytes) -> int:
        """Append a record as a leader's driver does; returns its offset."""
        self.effects = []
        offset = self.log.append([value], self.epoch, 0)
        self._extend_chains()
        self._apply_all(self.running.on_append(self.now_ms()))
        self.run_due_ticks()
        return offset

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
        self.step(events.Flushed())

    def crash(self, keep_records: int | None, *, write_survives: bool) -> None:
        """End this life.

        `keep_records`: how many unflushed records a power cut leaves; None when only the process dies and the page
        cache stays. `write_survives`: whether an election state that was being written made it.
        """
        if write_survives and self.writing is not None:
            self.stored = self.writing.state
        self.core = self.writing = self.to_write = self.crash_after_effects = None
        self.log.flushing_to = self.log.on_flush_done = None
        if keep_records is not None:
            self.log.lose_unflushed(keep_records)
        del self.chains[self.log.end_offset :]
        self._held, self.outbox, self._asked, self.effects = [], [], {}, []

    # Effects

    def _apply_all(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if self.crash_after_effects is not None:
                self.crash_after_effects -= 1
                if self.crash_after_effects < 0:
                    raise CrashedError
            self.effects.append(effect)
            self._apply(effect)
        self._release_held()

    def _apply(self, effect: fx.Effect) -> None:
        match effect:
            case fx.PersistElection():
                self.to_write = effect
            case fx.AppendControl(epoch, records):
                self.log.append_control(records, epoch, 0)
                self._extend_chains()
            case fx.AppendFetched(batches, max_epoch):
                self.log.append_fetched(batches, max_epoch)
                self._extend_chains()
            case fx.TruncateLog(offset):
                self.log.truncate_to(offset)
                del self.chains[offset:]
            case fx.SendRequest() | fx.Reply():
                self._held.append(effect)
            case (
                fx.HighWatermarkAdvanced()
                | fx.VotersChanged()
                | fx.LeaderChanged()
                | fx.BecameLeader()
                | fx.LostLeadership()
                | fx.ShutdownCompleted()
            ):
                pass
            case _:
                assert_never(effect)

    def _extend_chains(self) -> None:
        for offset in range(len(self.chains), self.log.end_offset):
            before = self.chains[offset - 1] if offset else 0
            record = self.log.records[offset]
            self.chains.append(hash((before, record.epoch, record.type, record.value)))

    def _release_held(self) -> None:
        held, self._held = self._held, []
        for waiting in held:
            effect = self.running.settled(waiting)
            if effect.after > self.running.replica.durable_ticket:
                self._held.append(effect)
            elif isinstance(effect, fx.SendRequest):
                sent = Envelope(self.id, effect.to, effect.correlation_id, self.life, effect.request)
                self.outbox.append(sent)
            else:
                self._answer(effect)

    def _answer(self, effect: fx.Reply) -> None:
        asked = self._asked.pop(effect.request_id)
        response = with_bytes(self.log, effect.response, effect.read)
        answer = Envelope(self.id, asked.source, asked.correlation_id, asked.life, asked.request, response)
        self.outbox.append(answer)
