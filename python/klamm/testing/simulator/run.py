"""Play one seed: a safety phase with faults, then a liveness phase without. `python -m klamm.testing.simulator`."""

import random
from dataclasses import dataclass, replace

from klamm.raft.config import RaftConfig
from klamm.raft.replica import InvariantError
from klamm.testing.simulator import faults, words
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.world import World

SAFETY_US = 15_000_000
LIVENESS_US = 60_000_000  # of simulated time: several election time-outs of the slowest clock
TRACE_LINES_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did."""

    seed: int
    voter_count: int
    event_count: int
    committed_count: int
    acknowledged_count: int
    highest_epoch: int
    installed_count: int


class SimulationFailedError(AssertionError):
    """A run broke a rule; the text names the rule, the line that replays it, and the last of what happened."""


def play(seed: int, *, directed: faults.Faults | None = None, trace: list[str] | None = None) -> Outcome:
    """Play a seed, with the faults that it draws or with `directed` ones. Raises SimulationFailedError."""
    dice = random.Random(seed)
    voter_count = dice.choice([1, 2, 3, 3, 3, 4, 5, 5])
    observer_count = dice.choice([0, 0, 1])
    config = _draw_config(dice)
    drawn = faults.draw(dice, list(range(1, voter_count + observer_count + 1)))
    drawn = replace(directed) if directed is not None else drawn
    world = World(dice, voter_count, observer_count, drawn, config)
    world.trace = trace
    if trace is not None:
        trace.append(f"seed {seed}: {voter_count} voters, {observer_count} observers, {drawn}")
    try:
        world.begin()
        world.run(SAFETY_US)
        world.heal()
        _check_liveness(world)
    except (AssertionError, InvariantError, ValueError) as error:  # ValueError: a log refuses what it is told to do
        raise SimulationFailedError(_report(seed, world, error)) from error
    return Outcome(
        seed=seed,
        voter_count=voter_count,
        event_count=world.event_count,
        committed_count=len(world.history.chains),
        acknowledged_count=len(world.acknowledged),
        highest_epoch=max(replica.epoch for replica in world.replicas.values()),
        installed_count=sum(replica.installed_count for replica in world.replicas.values()),
    )


def _draw_config(dice: random.Random) -> RaftConfig:
    """Kafka's time-outs, or a tenth of them for ten times the elections; fetches of one batch, of some, of all."""
    scale = dice.choice([1, 10])
    return RaftConfig(
        election_timeout_ms=1000 // scale,
        fetch_timeout_ms=2000 // scale,
        request_timeout_ms=2000 // scale,
        fetch_max_bytes=dice.choice([1, 200, 1 << 20]),
        fetch_max_wait_ms=dice.choice([5, 50, 500 // scale]),
        fetch_snapshot_max_bytes=dice.choice([20, 200, 1 << 20]),
    )


def _check_liveness(world: World) -> None:
    """Without faults the quorum elects, serves, and keeps every acknowledged write."""
    target = len(world.acknowledged) + 10
    if not world.run(world.now_us + LIVENESS_US, lambda: len(world.acknowledged) >= target and _all_agree(world)):
        raise InvariantViolatedError("no agreement after all faults ended")
    for value, offset in world.acknowledged.items():
        if world.history.values[offset] != value:
            raise InvariantViolatedError(f"{value!r} was acknowledged at {offset}, where another record is committed")


def _all_agree(world: World) -> bool:
    leaders = world.leaders()
    newest = max(world.acknowledged.values(), default=-1)
    return len(leaders) == 1 and all(
        replica.is_up and replica.epoch == leaders[0].epoch and replica.high_watermark > newest
        for replica in world.replicas.values()
    )


def _report(seed: int, world: World, error: Exception) -> str:
    lines = [f"seed {seed}: {error}", f"replay: python -m klamm.testing.simulator --seed {seed} --trace"]
    lines += [words.of_state(replica) for replica in world.replicas.values()]
    lines += (world.trace or [])[-TRACE_LINES_SHOWN:]
    return "\n".join(lines)
