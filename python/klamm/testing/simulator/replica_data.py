"""The data of a simulated replica: a log and a quorum-state that can be lost, and a state machine."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from klamm.raft import effects as fx
from klamm.raft.config import RaftConfig
from klamm.raft.election.election_state import ElectionState, decode, encode
from klamm.raft.election.roles import Role
from klamm.raft.log.control_records import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    decode_kraft_version,
    decode_voters,
    snapshot_head,
)
from klamm.raft.log.metadata_log import ControlRecord, OffsetAndEpoch, SnapshotInfo
from klamm.raft.node import RaftNode
from klamm.raft.voters.voter_set import (
    BOOTSTRAP_OFFSET,
    Endpoint,
    ReplicaKey,
    Voter,
    VoterSet,
    VotersInLog,
)
from klamm.testing.simulator import memory_snapshot
from klamm.testing.simulator.crashing import CrashedError
from klamm.testing.simulator.disk_files import DiskFiles
from klamm.testing.simulator.envelope import Envelope
from klamm.testing.simulator.memory_log import MemoryLog
from klamm.testing.simulator.scripted_requests import key_of

FOLDER: Final = Path("__cluster_metadata-0")
QUORUM_STATE: Final = FOLDER / "quorum-state"
CLUSTER = "cluster"
PORT = 9093  # until the replica moves

_decode_election = lru_cache(maxsize=256)(decode)
_decode_voters = lru_cache(maxsize=256)(decode_voters)


@dataclass(frozen=True, slots=True)
class LostDisk:
    """The content of a lost disk; its replica never returns with that key."""

    key: ReplicaKey
    log: MemoryLog
    chains: list[int | None]


class ReplicaData:
    """The state of a replica while it runs, and after a crash.

    `chains` has, for each record, a hash over it and all records before it: two logs are equal below an offset if the
    hashes there are. It is None below the last record of a fetched snapshot. The same hash is the state of the state
    machine, which folds committed records only.
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
        """`directory` is the letter of its directory id; each wiped disk gets the next one. None: it has no id."""
        self.id = node_id
        self.voters = voters
        self.is_voter = node_id in voters.ids
        self.directory = directory
        self.port = self.next_port = PORT  # where it listens now, and after its next start
        self.is_host_up = True  # its host refuses connections while the process is stopped
        self.is_stopping = self.has_handed_over = False
        self.lost: list[LostDisk] = []
        self.before_damage: LostDisk | None = None  # the former content of its log, known from the remaining files
        self.config = config
        self.now_ms = now_ms
        self.log = self._new_log()
        self.files = DiskFiles()  # of quorum-state
        self.core: RaftNode | None = None
        self.life = 0
        self.wipes = 0
        self.installed_count = 0  # snapshots, in all lives
        self.chains: list[int | None] = []
        self.applied = 0  # the state machine: how far, and the fold over all records below
        self.state = 0
        self.loaded_at_start = 0  # from the newest snapshot
        self.announced: tuple[int, int] | None = None  # the last own epoch that was announced, and what was applied
        self.outbox: list[Envelope] = []
        self.handed_out: list[Envelope] = []  # in this step, to connections, which send it when they stand
        self.effects: list[fx.Effect] = []  # of the last step, for observers
        self.crash_after_effects: int | None = None
        self.damage: Callable[[bytes], bytes] = lambda data: data  # how the disk changes a slice
        self.snapshotting: tuple[OffsetAndEpoch, bytes] | None = None
        # What its log said of the voters when it held that snapshot and a last control record with that chain.
        self._known_voters: tuple[tuple[OffsetAndEpoch | None, int | None], VotersInLog] | None = None

    # State

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self.core is not None

    @property
    def key(self) -> ReplicaKey:
        """Its node id and its directory id, or the one with which it would start."""
        return key_of(self.id, self.directory)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Its advertised endpoints; messages find it by its host name alone."""
        return (Endpoint("CONTROLLER", f"node-{self.id}", self.port),) if self.directory is not None else ()

    def is_reached_by(self, envelope: Envelope) -> bool:
        """Whether it runs and listens at the message's port; a response uses the connection of its request.

        A connection ends with the process that accepted it.
        """
        if envelope.response is None and envelope.connection is not None:
            return self.is_up and envelope.connection[1] == self.life
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
    def stored(self) -> ElectionState | None:
        """The content of quorum-state after a power failure now."""
        data = self.files.durable(QUORUM_STATE)
        return _decode_election(data) if data is not None else None

    def store(self, state: ElectionState) -> None:
        """Write quorum-state while the replica is stopped."""
        known = self.known_voters()
        self.files.write(QUORUM_STATE, encode(state, known.kraft_version, tuple(known.voters.ids)), sync=True)
        self.files.sync_directory(FOLDER)

    @property
    def epoch(self) -> int:
        """Its epoch, or the stored one while it is stopped."""
        if self.core is not None:
            return self.core.replica.election.epoch
        stored = self.stored
        return stored.epoch if stored is not None else 0

    @property
    def high_watermark(self) -> int:
        """The high watermark that it knows in this life; -1 for none."""
        return self.core.replica.high_watermark if self.core is not None else -1

    @property
    def sent(self) -> list[Envelope]:
        """The messages that this step sent; one that waited for a connection was checked when it was sent."""
        at_once = [one for one in self.outbox if one.connection is None or one.response is not None]
        return at_once + self.handed_out

    @property
    def reported_high_watermark(self) -> int:
        """The offset that its process may report as committed, perhaps before its core is notified."""
        return self.high_watermark

    def look(self) -> tuple[object, ...]:
        """Everything that invariants read of it, except its messages: equal looks have equal verdicts."""
        log, chains, core = self.log, self.chains, self.core
        inside: tuple[object, ...] | None = None
        if core is not None:
            replica = core.replica
            looks = (replica.election.epoch, replica.durable_ticket, replica.high_watermark, replica.voters_in_log)
            inside = (replica.state.ROLE, *looks)
        return (
            inside,
            self.reported_high_watermark,
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

    # Changes

    def fetch_as_much_as_possible(self) -> None:
        """Fetch as many bytes as Kafka does from now on."""
        usual = RaftConfig()
        self.config = replace(
            self.config, fetch_max_bytes=usual.fetch_max_bytes, fetch_snapshot_max_bytes=usual.fetch_snapshot_max_bytes
        )
        if self.core is not None:
            self.core.replica.config = self.config

    def known_voters(self) -> VotersInLog:
        """The voter set in force by its log, running or not; read again after its control records change."""
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
                known = replace(known, kraft_version=decode_kraft_version(value))
            elif kind == KRAFT_VOTERS:
                known = replace(known, voters=_decode_voters(value), offset=offset)
        return known

    def begin_snapshot(self, filler: bytes) -> None:
        """Take the committed state, to write it as a snapshot."""
        snapshot_id = OffsetAndEpoch(self.applied, self.log.epoch_at(self.applied - 1))
        controls = snapshot_head(self.running.replica.voter_history.below(self.applied))
        content = memory_snapshot.Content(snapshot_id, self.state, tuple(controls))
        self.snapshotting = (snapshot_id, memory_snapshot.encode(content, filler))

    def finish_snapshot(self) -> None:
        """The snapshot is durable."""
        if self.snapshotting is None:
            raise RuntimeError(f"replica {self.id} writes no snapshot")
        (snapshot_id, data), self.snapshotting = self.snapshotting, None
        if snapshot_id.offset >= self.log.start_offset and self.log.snapshot_size(snapshot_id) is None:
            self.log.add_snapshot(SnapshotInfo(snapshot_id, len(data), 0), data)

    def clean(self, snapshot_id: OffsetAndEpoch) -> None:
        """Start the log at one of its snapshots."""
        self.log.delete_before(snapshot_id)

    def _end_life(self, keep_records: int | None) -> None:
        """`keep_records`: how many unflushed records a power cut leaves; None: the page cache stays."""
        self.core = self.crash_after_effects = self.snapshotting = None
        self.is_stopping = self.has_handed_over = False
        if keep_records is not None:
            self.log.lose_unflushed(keep_records)
        end_offset = self.log.end_offset
        self.log.restart()
        if self.log.end_offset != end_offset:
            self._load_latest_snapshot()
            self.begin_chains_with_snapshot()
        del self.chains[self.log.end_offset :]
        self.outbox, self.handed_out, self.effects = [], [], []

    def wipe(self) -> None:
        """Lose the disk while the replica is stopped. The next disk has another directory id."""
        if self.directory is not None:
            self.lost.append(LostDisk(self.key, self.log, self.chains))
            self.directory = chr(ord(self.directory) + 1)
        self.log, self.files, self.chains = self._new_log(), DiskFiles(), []
        self.applied = self.state = 0
        self._known_voters = self.before_damage = None
        self.wipes += 1

    @property
    def is_dying(self) -> bool:
        """Whether it is crashing during an effect or between two: its memory may not match its disk any more."""
        return self.crash_after_effects is not None and self.crash_after_effects < 0

    # Inside

    def _maybe_crash(self) -> None:
        if self.crash_after_effects is not None:
            self.crash_after_effects -= 1
            if self.crash_after_effects < 0:
                raise CrashedError

    def _load_latest_snapshot(self) -> None:
        self.applied, self.state = self._latest_snapshot()

    def _latest_snapshot(self) -> tuple[int, int]:
        latest = self.log.latest_snapshot_id
        content = None if latest is None else memory_snapshot.decode_unchecked(self.log.snapshot_bytes[latest])
        return (0, 0) if content is None else (content.id.offset, content.state)

    def begin_chains_with_snapshot(self) -> None:
        """Start the chains at the log start, with its newest snapshot."""
        offset, state = self._latest_snapshot()
        self.chains = [None] * (offset - 1) + [state]

    def _fold(self, offset: int) -> None:
        """Apply committed records, as a node's listener does."""
        state, start = self.state, self.log.start_offset
        records = self.log.records[self.applied - start : offset - start]
        for record in records:
            state = hash((state, record))
        self.state, self.applied = state, self.applied + len(records)

    def extend_chains(self) -> None:
        """Extend the chains to the log end."""
        chains = self.chains
        chain = chains[-1] if chains else 0
        for record in self.log.records[len(chains) - self.log.start_offset :]:
            chain = hash((chain, record))
            chains.append(chain)

    def post(self, effect: fx.SendRequest) -> None:
        """Send a request."""
        target = effect.to if effect.to >= 0 else int(effect.endpoints[0].host.removeprefix("node-"))
        # A bootstrap server is found by name; the endpoints in the voter set may be outdated.
        port = effect.endpoints[0].port if effect.to >= 0 and effect.endpoints else None
        self.outbox.append(Envelope(self.id, target, effect.correlation_id, self.life, effect.request, port=port))


def format_first_voters(replicas: list[ReplicaData]) -> None:
    """Write the snapshot 0-0 with all initial voters to their directories (`--initial-controllers`)."""
    voters = VoterSet.of(Voter(replica.key, replica.endpoints) for replica in replicas)
    head = snapshot_head(VotersInLog(voters, BOOTSTRAP_OFFSET, 1))
    for replica in replicas:
        replica.log.snapshot_control = [ControlRecord(BOOTSTRAP_OFFSET, kind, value) for kind, value in head]
