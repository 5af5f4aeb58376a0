"""Replicas that only act on commands, one step at a time.

Messages, writes and flushes wait until a command releases them, and time stands still. After every step of a replica
all invariants are checked, as in a random run (`world`).
"""

from collections.abc import Callable

from klamm.raft.effects import Reply, SendRequest
from klamm.raft.messages import Request
from klamm.raft.replica_state import InvariantError
from klamm.testing.simulator import descriptions as words
from klamm.testing.simulator.crashing import CrashedError
from klamm.testing.simulator.envelope import Envelope
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.invariants.every import EveryInvariant
from klamm.testing.simulator.operator import CLIENT
from klamm.testing.simulator.simulated_replica import DiskWork, SimulatedReplica

SETTLE_STEPS_MAX = 2_000
_ENDS = {
    "quorum-state": "quorum-state is written",
    "log": "the log is flushed",
    "snapshot": "the snapshot is checked",
}


class Stage:
    """Replicas, their clocks, the messages between them, and the trace."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.clocks_ms: dict[int, int] = {}
        self.clear()

    def clear(self) -> None:
        """Start without replicas."""
        self.replicas: dict[int, SimulatedReplica] = {}
        self.messages: list[Envelope] = []
        self.cut: set[tuple[int, int]] = set()  # (from, to) that messages do not pass
        self.history = CommittedHistory()
        self._invariants = EveryInvariant(self.history)

    def pass_time(self, duration_ms: int) -> None:
        """Advance the time of all replicas."""
        for _ in range(duration_ms):
            for replica in self.replicas.values():
                self.clocks_ms[replica.id] += 1
                if replica.is_up and replica.deadline_ms <= self.clocks_ms[replica.id]:
                    self.act(replica, replica.tick)

    def settle(self) -> None:
        """Finish disk work and deliver messages until none are left."""
        for _ in range(SETTLE_STEPS_MAX):
            worked = [self.finish_disk_work(replica) for replica in self.replicas.values()]
            if self.messages:
                self.deliver(self.messages[0])
            elif not any(worked):
                break
        else:
            raise AssertionError("it never becomes idle")

    def act(self, replica: SimulatedReplica, act: Callable[[], object]) -> None:
        """Run a step of a replica, trace its effects, and queue its messages."""
        try:
            act()
        except CrashedError:
            self._say_effects(replica)
            self.lines.append(f"{replica.id}: dies")
            self.end_life(replica)
            return
        except InvariantError as error:
            self.lines.append(f"{replica.id}: stops: {error}")
            self.end_life(replica)
            return
        self.check(replica)
        self._say_effects(replica)
        for envelope in replica.outbox:
            is_lost = (envelope.source, envelope.target) in self.cut
            self.lines.append(f"  {words.of_envelope(envelope)}{' (lost)' if is_lost else ''}")
            if envelope.target != CLIENT and not is_lost:
                self.messages.append(envelope)
        replica.outbox.clear()

    def _say_effects(self, replica: SimulatedReplica) -> None:
        for effect in replica.effects:
            if not isinstance(effect, SendRequest | Reply):
                self.lines.append(f"{replica.id}: {words.of_effect(effect)}")

    def check(self, replica: SimulatedReplica) -> None:
        """Check the invariants; only that replica has changed. Raises InvariantViolatedError."""
        self._invariants.check(self.replicas, replica)

    def deliver(self, envelope: Envelope) -> None:
        """Deliver a message; it is lost if no process listens at that port."""
        self.messages.remove(envelope)
        target = self.replicas[envelope.target]
        if target.is_reached_by(envelope):
            self.lines.append(f"> {words.of_envelope(envelope)}")
            self.act(target, lambda: target.receive(envelope))

    def ask(self, replica: SimulatedReplica, asker: int, request: Request) -> None:
        """Send a scripted request: only the response is traced, after the disk work before it is done."""
        replica.receive(Envelope(asker, replica.id, -1, 0, request))
        self.check(replica)
        while self.finish_disk_work(replica, quietly=True):
            pass
        for envelope in [*replica.outbox, *self.messages]:
            if envelope.correlation_id == -1:
                self.lines.append(words.of_envelope(envelope))
        replica.outbox.clear()
        self.messages = [envelope for envelope in self.messages if envelope.correlation_id != -1]

    def end_life(self, replica: SimulatedReplica, keep_records: int | None = None) -> None:
        """End a process and its connections; with `keep_records`, a power failure that leaves so many unflushed."""
        replica.crash(keep_records, write_survives=False)
        self.messages = [envelope for envelope in self.messages if replica.id not in (envelope.source, envelope.target)]
        self.check(replica)

    def finish_disk_work(self, replica: SimulatedReplica, only: str | None = None, *, quietly: bool = False) -> bool:
        """Finish a write, a flush or a check; False if there is none."""
        for work in replica.disk_work():
            if only in (None, work.of):
                self._finish(replica, work, quietly)
                return True
        return False

    def _finish(self, replica: SimulatedReplica, work: DiskWork, quietly: bool) -> None:
        kept = len(self.lines)
        self.lines.append(f"{replica.id}: {_ENDS[work.of]}")
        self.act(replica, work.finish)
        if quietly:
            del self.lines[kept:]
