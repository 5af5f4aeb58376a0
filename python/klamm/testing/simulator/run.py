"""Runs one seed: a safety phase with faults, then a liveness phase without. `python -m klamm.testing.simulator`."""

import gc
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from klamm.raft.config import RaftConfig
from klamm.raft.log.control_records import KRAFT_VOTERS
from klamm.raft.voters.voter_set import Endpoint
from klamm.testing.simulator import descriptions as words
from klamm.testing.simulator import faults
from klamm.testing.simulator.full_check import FullCheck
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.world import World

SAFETY_US = 15_000_000
HASTE = 2.5  # for a run with a tenth of the timeouts: as many faults in less time
UPGRADE_US = 6_000_000  # without crashes: the upgrade needs every voter in one epoch
LIVENESS_US = 60_000_000  # of simulated time: several election timeouts of the slowest clock
TRACE_LINES_SHOWN = 60
ANSWERED_SHARE = 0.5  # of the runs: leaders answer fetches without their cores
CONNECTED_SHARE = 0.5  # of the runs
DAMAGED_SHARE = 0.25  # of the runs with static voters: logs are damaged
UPGRADED_SHARE = 0.25  # of the runs whose voters change


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    seed: int
    voter_count: int
    event_count: int
    committed_count: int
    acknowledged_count: int
    highest_epoch: int
    installed_count: int
    voter_changes: int = 0  # that were committed
    wipe_count: int = 0
    rejoined_count: int = 0  # replicas that vote with another disk than their first (dynamic quorums)
    is_upgraded: bool = False  # its voters were configured, and are in the log (kraft.version 0 to 1)
    is_lost: bool = False  # excused: no voter can be elected, too many disks of one voter set are gone
    is_stuck: bool = False  # excused: no voter can be elected, the remaining disks hold too little

    @property
    def is_excused(self) -> bool:
        """Whether the quorum did not have to serve in the end, which makes the run a weaker proof."""
        return self.is_lost or self.is_stuck


class SimulationFailedError(AssertionError):
    """A run broke a rule; the message has the rule, the command that replays it, and the end of the trace."""


def play(
    seed: int,
    *,
    directed: faults.Faults | None = None,
    trace: list[str] | None = None,
    full_check: bool = False,
) -> Outcome:
    """Run a seed, with the faults that it draws or with `directed` ones. Raises SimulationFailedError.

    `full_check`: check everything after every event, which is many times slower.
    """
    rng = random.Random(seed)
    voter_count = rng.choice([1, 2, 3, 3, 3, 4, 5, 5])
    observer_count = rng.choice([0, 0, 1])
    config = _draw_config(rng)
    drawn = faults.draw(rng, list(range(1, voter_count + observer_count + 1)))
    damage_rng = random.Random(f"damage {seed}")
    if damage_rng.random() < DAMAGED_SHARE:
        drawn.damage_every_us = damage_rng.choice([300_000, 1_000_000, 3_000_000])
    drawn, haste = (replace(directed), 1.0) if directed is not None else (drawn, _haste(config))
    drawn.hasten(haste)
    config = replace(config, fetches_go_on=rng.random() < 0.5, fetches_leased=are_fetches_leased(seed))
    world = World(rng, voter_count, observer_count, drawn, config, haste=haste, connected=are_connected(seed))
    world.trace = trace
    if full_check:
        world.full_check = FullCheck()
    if trace is not None:
        trace.append(f"seed {seed}: {voter_count} voters, {observer_count} observers, {drawn}")
    return _play(seed, world, haste, "")


def play_dynamic(
    seed: int,
    *,
    directed: faults.Faults | None = None,
    trace: list[str] | None = None,
    full_check: bool = False,
) -> Outcome:
    """Run a seed of a quorum whose voters change continuously. Raises SimulationFailedError.

    Besides the drawn faults, snapshots are written, logs are cleaned up to them, and disks are lost. One run in four
    starts with static voters and is upgraded to kraft.version 1 in the middle.
    """
    upgraded = random.Random(f"upgrade {seed}").random() < UPGRADED_SHARE
    rng = random.Random(f"dynamic {seed}")
    voter_count, spare_count = rng.choice([1, 2, 3, 3, 3, 4]), rng.choice([0, 1, 2])
    count = voter_count + spare_count
    servers = tuple(Endpoint("CONTROLLER", f"node-{node_id}", 9093) for node_id in range(1, count + 1))
    config = replace(_draw_config(rng), auto_join=rng.random() < 0.5, bootstrap_servers=servers)
    drawn, haste = faults.draw(rng, list(range(1, count + 1))), _haste(config)
    drawn.reconfigure_every_us = rng.choice([100_000, 500_000, 2_000_000])
    drawn.snapshot_every_us = rng.choice([50_000, 200_000, 1_000_000])
    drawn.clean_share = rng.choice([0.3, 1.0])
    drawn.wipe_every_us = rng.choice([500_000, 2_000_000, 5_000_000])
    if directed is not None:
        drawn, haste = replace(directed), 1.0
    drawn.hasten(haste)
    config = replace(config, fetches_go_on=rng.random() < 0.5, fetches_leased=are_fetches_leased(seed))
    world = World(
        rng,
        voter_count,
        spare_count,
        drawn,
        config,
        dynamic=True,
        upgraded=upgraded,
        haste=haste,
        connected=are_connected(seed),
    )
    world.trace = trace
    if full_check:
        world.full_check = FullCheck()
    if trace is not None:
        begin = "configured voters" if upgraded else "voters"
        trace.append(f"dynamic seed {seed}: {voter_count} {begin} and {spare_count} to add, {config}, {drawn}")
    return _play(seed, world, haste, "--dynamic ")


def _play(seed: int, world: World, haste: float, how: str) -> Outcome:
    try:
        with collector_off(), _quiet():
            world.begin(int(UPGRADE_US / haste) if world.must_be_upgraded else 0)
            world.run(int(SAFETY_US / haste))
            world.heal()
            is_excused = not _is_alive(world)
            is_lost = is_excused and world.operator.is_lost()
    except Exception as error:  # an invariant, a core or driver that stops, a log that refuses an operation
        raise SimulationFailedError(_report(seed, world, error, how)) from error
    return Outcome(
        seed=seed,
        voter_count=sum(map(world.is_voter, world.replicas.values())),
        event_count=world.event_count,
        committed_count=len(world.history.chains),
        acknowledged_count=len(world.acknowledged),
        highest_epoch=max(replica.epoch for replica in world.replicas.values()),
        installed_count=sum(replica.installed_count for replica in world.replicas.values()),
        voter_changes=sum(kind == KRAFT_VOTERS for kind in world.history.kinds),
        wipe_count=sum(replica.wipes for replica in world.replicas.values()),
        rejoined_count=sum(replica.wipes > 0 and world.is_voter(replica) for replica in world.replicas.values()),
        is_upgraded=world.has_configured_voters and world.is_upgraded(),
        is_lost=is_lost,
        is_stuck=is_excused and not is_lost,
    )


def are_fetches_leased(seed: int) -> bool:
    """Whether leaders answer fetches without their cores in the runs of that seed."""
    return random.Random(f"answered {seed}").random() < ANSWERED_SHARE


def are_connected(seed: int) -> bool:
    """Whether requests use the product's connections in the runs of that seed."""
    return random.Random(f"connected {seed}").random() < CONNECTED_SHARE


def _haste(config: RaftConfig) -> float:
    return HASTE if config.election_timeout_ms < RaftConfig().election_timeout_ms else 1.0


@contextmanager
def collector_off() -> Iterator[None]:
    """Disable the garbage collector: a run makes few cycles, and the collector would scan its world repeatedly."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the driver's log messages about simulated faults."""
    logger = logging.getLogger("klamm.raft")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled


def _draw_config(rng: random.Random) -> RaftConfig:
    """Kafka's timeouts, or a tenth of them for ten times the elections; fetches of one batch, of some, of all."""
    scale = rng.choice([1, 10])
    return RaftConfig(
        election_timeout_ms=1000 // scale,
        fetch_timeout_ms=2000 // scale,
        request_timeout_ms=2000 // scale,
        retry_backoff_ms=100 // scale,
        fetch_max_bytes=rng.choice([1, 200, 1 << 20]),
        fetch_max_wait_ms=rng.choice([20, 50, 500 // scale]),
        fetch_snapshot_max_bytes=rng.choice([20, 200, 1 << 20]),
        crash_detection=rng.random() < 0.7,
    )


def _is_alive(world: World) -> bool:
    """Whether, without faults, the quorum elects, serves, and keeps every acknowledged write, if it is able to."""
    target = len(world.acknowledged) + 10
    if not world.run(world.now_us + LIVENESS_US, lambda: len(world.acknowledged) >= target and _all_agree(world)):
        if world.operator.is_stuck():
            return False
        raise InvariantViolatedError("no agreement after all faults ended")
    for value, offset in world.acknowledged.items():
        if world.history.values[offset] != value:
            raise InvariantViolatedError(f"{value!r} was acknowledged at {offset}, where another record is committed")
    return True


def _all_agree(world: World) -> bool:
    leaders = world.leaders()
    if len(leaders) != 1 or (world.must_be_upgraded and not world.is_upgraded()):
        return False
    epoch, newest, voters = leaders[0].epoch, world.newest_acknowledged, leaders[0].running.replica.voters
    return all(
        replica.is_up
        and replica.high_watermark > newest
        and replica.epoch == epoch
        and (not replica.config.auto_join or not world.is_upgraded() or voters.is_voter(replica.key))
        for replica in world.replicas.values()
    )


def _report(seed: int, world: World, error: Exception, how: str) -> str:
    lines = [f"seed {seed}: {error}", f"replay: python -m klamm.testing.simulator {how}--seed {seed} --trace"]
    lines += [words.of_state(replica) for replica in world.replicas.values()]
    lines += (world.trace or [])[-TRACE_LINES_SHOWN:]
    return "\n".join(lines)
