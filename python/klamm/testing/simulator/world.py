"""Time, network, disks and clients of a simulated quorum, all driven by one random number generator.

Invariants are checked after every event. `Faults` configures what goes wrong; `heal` ends it.
"""

import random
from collections.abc import Callable
from dataclasses import replace

from klamm.raft.config import RaftConfig
from klamm.raft.effects import PersistElection
from klamm.raft.election.role_states import NEVER_MS
from klamm.raft.election.roles import Role
from klamm.raft.events import PeerCrashed, ResignRequested
from klamm.raft.log.control_records import KRAFT_VERSION
from klamm.raft.voters.voter_set import VoterSet
from klamm.testing.simulator import descriptions as words
from klamm.testing.simulator.crashing import CrashedError
from klamm.testing.simulator.envelope import Envelope
from klamm.testing.simulator.faults import Faults
from klamm.testing.simulator.full_check import FullCheck
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.invariants.every import EveryInvariant
from klamm.testing.simulator.lost_records import damage_log, has_lost_records
from klamm.testing.simulator.network import Network
from klamm.testing.simulator.operations import Operations
from klamm.testing.simulator.operator import CLIENT, Operator
from klamm.testing.simulator.replica_data import format_first_voters
from klamm.testing.simulator.simulated_replica import SimulatedReplica
from klamm.testing.simulator.simulation import Simulation
from klamm.testing.simulator.wiping import WIPED_FOR_US, may_be_wiped

PROPOSE_EVERY_US = 20_000
UPGRADE_EVERY_US = 200_000


class World(Simulation):
    """A quorum of `voter_count` voters and some observers, with simulated time."""

    def __init__(
        self,
        rng: random.Random,
        voter_count: int,
        observer_count: int,
        faults: Faults,
        config: RaftConfig,
        *,
        dynamic: bool = False,
        upgraded: bool = False,
        haste: float = 1.0,
        connected: bool = False,
        new_replica: type[SimulatedReplica] = SimulatedReplica,
    ) -> None:
        """`dynamic`: the voters are in the log (kraft.version 1), and the initial ones were formatted with them.

        `upgraded`: a dynamic quorum that starts with configured voters (kraft.version 0) and is upgraded during the
        run.

        With more `haste` a wiped replica is away for a shorter time. `connected`: requests use the product's
        connections.
        """
        super().__init__(rng, faults)
        self._is_dynamic = dynamic
        self._wiped_for_us = int(WIPED_FOR_US / haste)
        self.history = CommittedHistory()
        self.acknowledged: dict[bytes, int] = {}  # value -> offset
        self.newest_acknowledged = -1
        self._proposed: dict[tuple[int, int], list[tuple[int, bytes]]] = {}  # (leader, life) -> (offset, value)
        self._next_value = 0
        self._clock_offsets_ms: dict[int, int] = {}
        self._tick_at_us: dict[int, int] = {}
        self.network = Network(self)
        self.has_configured_voters = upgraded or not dynamic
        self.must_be_upgraded = upgraded
        voters = VoterSet.of_ids(range(1, voter_count + 1)) if self.has_configured_voters else VoterSet(())
        for node_id in range(1, voter_count + observer_count + 1):
            self._clock_offsets_ms[node_id] = rng.randrange(1_000_000)
            directory = "A" if dynamic else None
            clock = self._clock_of(node_id)
            never_votes = not dynamic and node_id > voter_count and rng.random() < 0.5
            own_config = replace(config, never_votes=never_votes)
            replica = new_replica(
                node_id,
                voters,
                own_config,
                clock,
                directory=directory,
                luck=self._is_lucky,
                dial=self.network.dial if connected else None,
            )
            replica.damage = self._damage
            self.replicas[node_id] = replica
        self.operator = Operator(rng, self.replicas)
        self.operations = Operations(self, self.network, self.operator)
        if not self.has_configured_voters:
            format_first_voters([self.replicas[node_id] for node_id in range(1, voter_count + 1)])
        self.invariants = EveryInvariant(self.history)
        self.full_check: FullCheck | None = None  # to check all of it after every event

    def _is_lucky(self) -> bool:
        return self.rng.random() < 0.5

    # Running

    def begin(self, calm_us: int = 0) -> None:
        """Start all replicas, the clients and the operator, and the faults after `calm_us`."""
        for replica in self.replicas.values():
            self.at(self.rng.randrange(100_000), lambda replica=replica: self.start_replica(replica))  # type: ignore[misc]
        self.every(lambda: PROPOSE_EVERY_US, self._propose_somewhere)
        if self.must_be_upgraded:
            self.every(lambda: UPGRADE_EVERY_US, self.operations.upgrade)
        if not calm_us:
            self._begin_faults()
            return
        drawn, self.faults = self.faults, Faults(clock_rates=self.faults.clock_rates)
        self.at(calm_us, lambda: self._end_calm(drawn))

    def _end_calm(self, drawn: Faults) -> None:
        self.faults = drawn
        self._begin_faults()

    def _begin_faults(self) -> None:
        faults = self.faults
        self.every(lambda: faults.reconfigure_every_us, self.operations.reconfigure)
        self.every(lambda: faults.partition_every_us, self.network.change_partition)
        self.every(lambda: faults.crash_every_us, self._crash_someone)
        self.every(lambda: faults.resign_every_us, self._resign_someone)
        self.every(lambda: faults.clock_jump_every_us, self._jump_a_clock)
        self.every(lambda: faults.snapshot_every_us, self._snapshot_somewhere)
        self.every(lambda: faults.wipe_every_us, self._wipe_someone)
        self.every(lambda: faults.shutdown_every_us, self.operations.shut_down_someone)
        self.every(lambda: faults.damage_every_us, self._damage_a_log)
        self.every(lambda: faults.false_alarm_every_us, self._alarm_falsely)

    def heal(self) -> None:
        """End all faults, and start stopped replicas. Fetch responses become large, so that all catch up quickly."""
        self.say("all faults end")
        self.faults.stop()
        self.network.cut.clear()
        for replica in self.replicas.values():
            replica.crash_after_effects = None
            replica.fetch_as_much_as_possible()
            if not replica.is_up:
                self.start_replica(replica)

    def is_voter(self, replica: SimulatedReplica) -> bool:
        """Whether it is a voter according to the newest leader."""
        leader = max(self.leaders(), key=lambda leader: leader.epoch, default=None)
        return leader is not None and leader.running.replica.voters.is_voter(replica.key)

    def is_upgraded(self) -> bool:
        """Whether kraft.version 1 with the voters is committed in the log."""
        return KRAFT_VERSION in self.history.kinds

    # Time

    def _clock_of(self, node_id: int) -> Callable[[], int]:
        rate = self.faults.clock_rates.get(node_id, 1.0)
        return lambda: self._clock_offsets_ms[node_id] + int(self.now_us * rate) // 1000

    def _until_ms(self, replica: SimulatedReplica, deadline_ms: int) -> int:
        """Microseconds until the replica's own clock shows that time."""
        rate = self.faults.clock_rates.get(replica.id, 1.0)
        shown_us = (deadline_ms - self._clock_offsets_ms[replica.id]) * 1000
        return max(int(shown_us / rate) + 1 - self.now_us, 0)

    # Steps of a replica

    def step(self, replica: SimulatedReplica, act: Callable[[], None]) -> None:
        """Run a step of a running replica, which may crash in it, and handle the results."""
        is_doomed = self.rng.random() < self.faults.crash_in_step_chance
        if is_doomed:
            replica.crash_after_effects = self.rng.randrange(6)
        try:
            act()
        except CrashedError:
            self._after_step(replica)
            self._crash(replica)
            return
        if is_doomed:
            replica.crash_after_effects = None
        self._after_step(replica)

    def _after_step(self, replica: SimulatedReplica) -> None:
        if self.trace is not None:
            for effect in replica.effects:
                self.say(f"{replica.id}: {words.of_effect(effect)}")
        self._check(replica)
        self._acknowledge(replica)
        if replica.role is Role.LEADER and any(type(effect) is PersistElection for effect in replica.effects):
            self._maybe_strike(replica)
        if replica.outbox:
            for envelope in replica.outbox:
                self._send(envelope)
            replica.outbox.clear()
        if replica.is_up:
            for finish in replica.begin_disk_work():
                delay_us = self._disk_us()
                self.at(delay_us, self.while_alive(replica, finish))
                if self.faults.crash_in_write_chance:
                    self._maybe_crash_within(replica, delay_us)
            self._arm(replica, replica.deadline_ms)
        if replica.has_handed_over:
            replica.has_handed_over = False
            life = replica.life
            self.at(self._disk_us(), lambda: self._end(replica, life))

    def _check(self, replica: SimulatedReplica) -> None:
        self.invariants.check(self.replicas, replica)
        if self.full_check is not None:
            self.full_check.check(self.replicas, replica)

    def _arm(self, replica: SimulatedReplica, deadline_ms: int) -> None:
        if deadline_ms >= NEVER_MS:
            self._tick_at_us.pop(replica.id, None)
            return
        at_us = self.now_us + self._until_ms(replica, deadline_ms)
        if self._tick_at_us.get(replica.id) == at_us:
            return
        self._tick_at_us[replica.id] = at_us

        def tick() -> None:
            if self._tick_at_us.get(replica.id) == at_us and replica.is_up:
                del self._tick_at_us[replica.id]
                self.step(replica, replica.tick)

        self.at(at_us - self.now_us, tick)

    # Disk

    def _disk_us(self) -> int:
        if self.rng.random() < self.faults.slow_disk_chance:
            return self.rng.randrange(self.faults.slow_disk_us_max)
        return 50 + self.rng.randrange(1_000)

    def _snapshot_somewhere(self) -> None:
        """A replica that has applied records may write a snapshot, and may crash during it."""
        replica = self.rng.choice(list(self.replicas.values()))
        latest = replica.log.latest_snapshot_id
        if not replica.is_up or replica.snapshotting is not None:
            return
        if replica.applied <= (latest.offset if latest is not None else 0):
            return
        size = self.rng.randrange(self.faults.snapshot_bytes_max)
        replica.begin_snapshot(bytes([replica.id]) * size)
        self.say(f"{replica.id} writes a snapshot of {replica.applied} records")
        self.at(self._disk_us(), self.while_alive(replica, lambda: self._finish_snapshot(replica)))

    def _finish_snapshot(self, replica: SimulatedReplica) -> None:
        replica.finish_snapshot()
        snapshots = replica.log.snapshots()
        if self.rng.random() < self.faults.clean_share:
            begin_with = snapshots[-1].id if self.rng.random() < 0.5 else self.rng.choice(snapshots).id
            replica.clean(begin_with)
            self.say(f"the log of {replica.id} begins with snapshot {words.of_end(begin_with)}")

    def _damage(self, data: bytes) -> bytes:
        """Sometimes the disk stores only a part of a slice, or other bytes."""
        if self.rng.random() >= self.faults.damaged_slice_chance:
            return data
        at = self.rng.randrange(len(data))
        self.say(f"a disk damages byte {at} of a slice")
        return data[:at] + bytes([data[at] ^ 1 + self.rng.randrange(255)]) + data[at + 1 :]

    # Network

    def _send(self, envelope: Envelope) -> None:
        if envelope.target == CLIENT:
            self.say(f"client: {words.of_envelope(envelope)}" if self.trace is not None else "")
            self.operations.on_answer(envelope)
        else:
            self.network.send(envelope)

    # Faults

    def start_replica(self, replica: SimulatedReplica) -> None:
        """Start a stopped replica; no effect on a running one."""
        if not replica.is_up:
            self.say(f"{replica.id} starts")
            self.step(replica, lambda: replica.start(self.rng.getrandbits(32)))

    def _crash(self, replica: SimulatedReplica) -> None:
        unflushed = replica.log.end_offset - replica.log.flushed_offset
        keep = self.rng.randint(0, unflushed) if self.rng.random() < self.faults.power_cut_share else None
        self.say(f"{replica.id} crashes" + ("" if keep is None else f", {keep} of {unflushed} unflushed records stay"))
        self._go_away(replica, keep, write_survives=self.rng.random() < 0.5)

    def _maybe_crash_within(self, replica: SimulatedReplica, delay_us: int) -> None:
        life = replica.life

        def crash() -> None:
            if replica.is_up and replica.life == life:
                self._crash(replica)

        if self.rng.random() < self.faults.crash_in_write_chance:
            self.at(self.rng.randrange(delay_us + 1), crash)

    def _end(self, replica: SimulatedReplica, life: int) -> None:
        """An orderly end, with everything written."""
        if replica.is_up and replica.life == life:
            self.say(f"{replica.id} ends")
            self._go_away(replica, None, write_survives=True)

    def _go_away(self, replica: SimulatedReplica, keep: int | None, *, write_survives: bool) -> None:
        replica.crash(keep, write_survives=write_survives)
        replica.is_host_up = keep is None
        self._tick_at_us.pop(replica.id, None)
        self._check(replica)
        if keep is None:
            self._maybe_notice_crash(replica)
        self.at(self.rng.randrange(self.faults.away_us_max), lambda: self.start_replica(replica))

    def _wipe_someone(self) -> None:
        """Replace a disk by an empty one, if the quorum survives that."""
        replica = self.rng.choice(list(self.replicas.values()))
        if not replica.is_up or not self._may_be_wiped(replica):
            return
        replica.crash(0, write_survives=False)
        self._tick_at_us.pop(replica.id, None)
        replica.wipe()
        if self._is_dynamic:
            replica.voters = VoterSet(())  # a replica with an empty disk uses its configuration
        comes_as = f", and comes back with directory {replica.directory}" if self._is_dynamic else ""
        self.say(f"{replica.id} loses its disk{comes_as}")
        self._check(replica)
        away_us = self.rng.randrange(self.faults.away_us_max) if self._is_dynamic else self._wiped_for_us
        self.at(away_us, lambda: self.start_replica(replica))

    def _damage_a_log(self) -> None:
        """A stopped voter loses records. A majority keeps theirs; otherwise no election could succeed."""
        voters = [replica for replica in self.replicas.values() if replica.is_voter]
        replica = self.rng.choice(voters)
        damaged = sum(has_lost_records(other) for other in voters if other is not replica)
        if not replica.is_up or damaged >= (len(voters) - 1) // 2:
            return
        replica.crash(None, write_survives=False)
        replica.is_host_up = True
        self._tick_at_us.pop(replica.id, None)
        log = replica.log
        lowest = max(log.start_offset, log.latest_snapshot_id.offset if log.latest_snapshot_id is not None else 0)
        damage_log(replica, self.rng.randint(lowest, max(lowest, log.flushed_offset)))
        self.say(
            f"{replica.id} loses records: its log ends at {log.end_offset}, and held {words.of_end(log.proven_end)}"
        )
        self._check(replica)
        self.at(self.rng.randrange(self.faults.away_us_max), lambda: self.start_replica(replica))

    def _may_be_wiped(self, replica: SimulatedReplica) -> bool:
        if self._is_dynamic:
            is_begun = not self.has_configured_voters or KRAFT_VERSION in self.history.kinds
            return is_begun and self.operator.may_lose_disk(replica)
        return may_be_wiped(self.replicas, replica, self.history)

    def _maybe_notice_crash(self, crashed: SimulatedReplica) -> None:
        """The host is up, and refuses the others' connections."""
        for replica in self.replicas.values():
            if replica is not crashed and replica.is_up and self.rng.random() < self.faults.notice_crash_chance:
                self._report_crash(replica, crashed.id, 50 + self.rng.randrange(self.faults.delay_us_max))

    def _alarm_falsely(self) -> None:
        replica, crashed = self.rng.choices(list(self.replicas.values()), k=2)
        if replica.is_up:
            self._report_crash(replica, crashed.id, 0)

    def _report_crash(self, replica: SimulatedReplica, crashed_id: int, delay_us: int) -> None:
        def report() -> None:
            if replica.has_connections:
                self.say(f"the connections of {replica.id} to {crashed_id} are closed")
                replica.lose_connections(crashed_id)
            else:
                self.say(f"{replica.id} is refused by {crashed_id}")
                replica.step(PeerCrashed(crashed_id))

        self.at(delay_us, self.while_alive(replica, report))

    def _crash_someone(self) -> None:
        replica = self.rng.choice(list(self.replicas.values()))
        if replica.is_up:
            self._crash(replica)

    def _maybe_strike(self, leader: SimulatedReplica) -> None:
        """Crash or isolate a new leader after it had time to append and to reach some, but not all, of the others."""
        if self.rng.random() >= self.faults.strike_leader_chance:
            return
        life, is_crash = leader.life, self.rng.random() < 0.7

        def strike() -> None:
            if not leader.is_up or leader.life != life or not self.faults.strike_leader_chance:
                return
            if is_crash:
                self._crash(leader)
            else:
                others = [node_id for node_id in self.replicas if node_id != leader.id]
                self.network.cut = {pair for node_id in others for pair in ((node_id, leader.id), (leader.id, node_id))}
                self.say(f"no message passes from or to {leader.id}")

        self.at(self.rng.randrange(self.rng.choice([3_000, 30_000, 300_000])), strike)

    def _resign_someone(self) -> None:
        for leader in self.leaders():
            self.step(leader, lambda leader=leader: leader.step(ResignRequested(leader.epoch)))  # type: ignore[misc]

    def _jump_a_clock(self) -> None:
        replica = self.rng.choice(list(self.replicas.values()))
        self._clock_offsets_ms[replica.id] += self.rng.randrange(5_000)
        self.say(f"the clock of {replica.id} jumps ahead")
        if replica.is_up:
            self.step(replica, replica.tick)

    # Clients

    def _propose_somewhere(self) -> None:
        """Propose at every replica that considers itself leader: at most one of them can commit it."""
        for leader in self.leaders():
            if leader.can_append:
                self._propose(leader)

    def _propose(self, leader: SimulatedReplica) -> None:
        count = self.rng.choice([1, 1, 3])  # a batch may be only partly durable
        values = [b"value-%d" % number for number in range(self._next_value + 1, self._next_value + count + 1)]
        self._next_value += count

        def act() -> None:
            last = leader.propose(values)
            if last is None:
                return  # refused, or the outcome is unknown
            first = last - count + 1
            self._proposed.setdefault((leader.id, leader.life), []).extend(enumerate(values, first))

        self.say(f"{leader.id} is asked for {values[0].decode()}" + (" and two more" if count > 1 else ""))
        self.step(leader, act)

    def _acknowledge(self, replica: SimulatedReplica) -> None:
        """Records that a leader sees committed while it leads are acknowledged; the outcome of others is unknown."""
        waiting = self._proposed.get((replica.id, replica.life))
        if not waiting:
            return
        if replica.role is not Role.LEADER:
            waiting.clear()
            return
        while waiting and replica.has_acknowledged(waiting[0][0]):
            offset, value = waiting.pop(0)
            if offset >= len(self.history.chains):
                raise InvariantViolatedError(f"{replica.id} acknowledged {value!r} at {offset}, which is not committed")
            self.acknowledged[value] = offset
            self.newest_acknowledged = max(self.newest_acknowledged, offset)
