"""Runs one seed of simulated brokers: a phase with faults, then one without.

`python -m klamm.testing.simulator --brokers`
"""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from klamm.testing.simulator.brokers import compaction, faults
from klamm.testing.simulator.brokers.group_settings import LOCK_MS
from klamm.testing.simulator.brokers.world import BrokerWorld, ClusterPlan
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.run import SimulationFailedError, collector_off

SAFETY_US: Final = 10_000_000
LIVENESS_US: Final = 60_000_000
QUORUM_EVERY: Final = 12
TRANSACTIONS_SHARE: Final = 0.5
COMPACTED_SHARE: Final = 0.2
DELIVERY_LIMIT: Final = 3
"""Of share groups in directed runs."""
PAUSES_SHARE: Final = 0.3  # of the runs: controllers are paused
OFFSETS_SHARE: Final = 0.4  # of the runs with transactions: they commit offsets
MEMBERS_SHARE: Final = 0.2
CLASSIC_SHARE: Final = 0.4  # of the runs with members: some use the classic protocol
STREAMS_SHARE: Final = 0.25  # of the runs with members: there is a streams group, too
KINDS_SHARE: Final = 0.5  # of the runs with members: some are static or have regular expressions
SHARES_SHARE: Final = 0.08
DAMAGED_SHARE: Final = 0.15
MIN_REPLICAS: Final = 2  # one is damaged, and another has the same
TRACE_LINES_SHOWN: Final = 60
MEMORY: Final = Path("/dev/shm")  # files of a run need no disk
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "900",
    "leader.imbalance.check.interval.seconds": "1",
    "metadata.max.idle.interval.ms": "2000",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "50",
    "replica.lag.time.max.ms": "1000",
    "unclean.leader.election.interval.ms": "1000",
}
"""A tenth or less of the defaults, for as many events in less time."""


@dataclass(frozen=True, slots=True)
class BrokerOutcome:
    """The result of a run."""

    seed: int
    broker_count: int
    event_count: int
    committed_count: int
    acknowledged_count: int
    lives: int
    highest_epoch: int


def play(
    seed: int,
    *,
    directed: faults.BrokerFaults | None = None,
    settings: Mapping[str, str] | None = None,
    without: str | None = None,
    quorum: bool = False,
    trace: list[str] | None = None,
) -> BrokerOutcome:
    """Run a seed, with the faults that it draws or with `directed` ones. Raises SimulationFailedError.

    `settings` replace those of the brokers. `without` is the guard that they lack, of `SimulatedBroker.guards`.
    With `quorum` there are three controllers, also with `directed` faults.
    """
    rng = random.Random(f"brokers {seed}")
    drawn = faults.draw(rng)
    drawn.transact_every_us, drawn.effect_crash_chance, version = _draw_transactions(seed)
    drawn.pause_controller_every_us = _draw_pauses(seed)
    drawn.commit_offsets_chance, drawn.member_every_us = _draw_groups(seed)
    if directed is not None:
        drawn = replace(directed)
    plan = _draw_plan(rng)._replace(has_quorum=quorum or (has_quorum(seed) and without is None and directed is None))
    plan = _draw_damage(rng, plan) if directed is None else plan
    if directed is None:
        drawn.instance_share, drawn.pattern_share = _draw_kinds_of_members(seed)
        # The classic protocol names topics, so that one that was created again is taken for the one before.
        drawn.streams_groups = int(random.Random(f"streams groups {seed}").random() < STREAMS_SHARE)
        drawn.classic_share = 0.0 if drawn.recreate_every_us else _draw_classic_members(seed)
    slots = {"max.incremental.fetch.session.cache.slots": _draw_session_slots(seed)}
    plan = plan._replace(settings={**plan.settings, **slots, **(settings or {})}, without=without)
    plan = _draw_compaction(seed, plan, drawn, is_directed=directed is not None)
    if drawn.transact_every_us:
        plan = _with_transactions(plan, version)
        plan = plan._replace(has_groups=drawn.commit_offsets_chance > 0)
    if drawn.member_every_us:
        plan = plan._replace(features={**plan.features, "group.version": 1}, has_groups=True, has_members=True)
    drawn.share_every_us, limit = (drawn.share_every_us, DELIVERY_LIMIT) if directed else _draw_shares(seed)
    if drawn.share_every_us:
        plan = _with_shares(plan, drawn, limit)
    if plan.may_be_damaged:
        _allow_damage(drawn)
    with collector_off(), tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        world = BrokerWorld(rng, drawn, Path(folder), plan)
        world.trace = trace
        world.say(f"seed {seed}: {plan}, {drawn}")
        loggers = [logging.getLogger(name) for name in ("klamm.controller", "klamm.raft", "klamm.coordinator")]
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)  # it warns of the simulated faults
        try:
            world.begin()
            world.begin_load()
            world.run(world.now_us + SAFETY_US)
            _settle(world)
        except Exception as error:  # an invariant, or a step that fails
            raise SimulationFailedError(_report(seed, world, error)) from error
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            for broker in world.brokers.values():
                if broker.is_up:
                    broker.engine.kill()
    return _outcome(seed, plan, world)


def _outcome(seed: int, plan: ClusterPlan, world: BrokerWorld) -> BrokerOutcome:
    image = world.controller.image
    partitions = [partition for key in world.keys if (partition := image.partition(*key)) is not None]
    return BrokerOutcome(
        seed=seed,
        broker_count=plan.broker_count,
        event_count=world.event_count,
        committed_count=sum(len(history.committed) for history in world.looks.histories.values()),
        acknowledged_count=world.acknowledged_count,
        lives=sum(broker.life for broker in world.brokers.values()),
        highest_epoch=max(partition.leader_epoch for partition in partitions),
    )


def has_quorum(seed: int) -> bool:
    """Whether the run of that seed has three controllers."""
    return seed % QUORUM_EVERY == 0


def _draw_transactions(seed: int) -> tuple[int, float, int]:
    """How often transactional producers take a step (0: never), the chance of crashes at appends of coordinators, and
    the level of transaction.version, by random numbers of their own.
    """
    rng = random.Random(f"transactions {seed}")
    every_us = rng.randrange(10_000, 100_000) if rng.random() < TRANSACTIONS_SHARE else 0
    crash_chance = rng.choice([0.0, 0.0, 0.0, 0.01, 0.05])
    return every_us, crash_chance, rng.choice([2, 2, 2, 2, 1, 0])


def _draw_pauses(seed: int) -> int:
    """How often a controller is paused (0: never), by random numbers of their own."""
    rng = random.Random(f"pauses {seed}")
    return rng.randrange(1_000_000, 5_000_000) if rng.random() < PAUSES_SHARE else 0


def _draw_session_slots(seed: int) -> str:
    """How many fetch sessions a leader has: too few in some of the runs, so that they are evicted or refused."""
    return random.Random(f"sessions {seed}").choice(["0", "1", "1", "2", "1000", "1000", "1000", "1000"])


def _draw_groups(seed: int) -> tuple[float, int]:
    """The chance that a step of a transaction commits offsets of a group, and how often members come and go (0: there
    are none), by random numbers of their own.
    """
    rng = random.Random(f"groups {seed}")
    chance = rng.choice([0.2, 0.5]) if rng.random() < OFFSETS_SHARE else 0.0
    return chance, rng.randrange(100_000, 600_000) if rng.random() < MEMBERS_SHARE else 0


def _draw_kinds_of_members(seed: int) -> tuple[float, float]:
    """How many members of consumer groups have instance ids or regular expressions, by random numbers of their own."""
    rng = random.Random(f"kinds of members {seed}")
    shares = rng.choice([0.0, 0.0, 0.4, 1.0]), rng.choice([0.0, 0.0, 0.0, 0.5])
    return shares if rng.random() < KINDS_SHARE else (0.0, 0.0)


def _draw_classic_members(seed: int) -> float:
    """How many members of consumer groups use the classic protocol, by random numbers of their own."""
    rng = random.Random(f"classic members {seed}")
    return rng.choice([0.3, 0.5, 0.7, 1.0]) if rng.random() < CLASSIC_SHARE else 0.0


def _draw_shares(seed: int) -> tuple[int, int]:
    """How often members of share groups come and go (0: there are none), and how often a record is delivered at most,
    by random numbers of their own.
    """
    rng = random.Random(f"shares {seed}")
    every_us = rng.randrange(100_000, 1_000_000) if rng.random() < SHARES_SHARE else 0
    return every_us, rng.choice([2, 3, 5])


def _with_shares(plan: ClusterPlan, drawn: faults.BrokerFaults, delivery_limit: int) -> ClusterPlan:
    """Nothing may be lost: otherwise little would be promised."""
    drawn.unclean_share = 0.0
    settings = {
        **{key: value for key, value in plan.settings.items() if key != "klamm.flush.before.ack"},
        "group.share.delivery.count.limit": str(delivery_limit),
        "group.share.record.lock.duration.ms": str(LOCK_MS),
        "group.share.partition.max.record.locks": "100",
    }
    features = {**plan.features, "group.version": 1, "share.version": 1}
    plan = plan._replace(settings=settings, features=features, elects_unclean=False)
    return plan._replace(has_groups=True, delivery_limit=delivery_limit)


def _with_transactions(plan: ClusterPlan, version: int) -> ClusterPlan:
    features = {**plan.features, "transaction.version": version, "group.version": 1}
    return plan._replace(features=features, transaction_version=version)


def _draw_plan(rng: random.Random) -> ClusterPlan:
    broker_count = rng.choice([1, 2, 3, 3, 3, 4])
    replica_count = min(broker_count, rng.choice([1, 2, 3, 3, 3]))
    return ClusterPlan(
        broker_count,
        partition_count=rng.choice([1, 2, 3]),
        replica_count=replica_count,
        min_insync_replicas=rng.randint(1, max(1, replica_count - 1)),
        elects_unclean=rng.random() < 0.2,
        settings=SETTINGS | ({"klamm.flush.before.ack": "none"} if rng.random() < 0.25 else {}),
        features={"metadata.version": 30, "eligible.leader.replicas.version": rng.choice([0, 1])},
        topic_configs=_draw_topic_configs(rng),
        dir_count=rng.choice([1, 1, 2, 3]),
    )


def _allow_damage(drawn: faults.BrokerFaults) -> None:
    """Damage is repaired while another replica has the same: without what takes that away."""
    drawn.damage_chance = 0.5
    drawn.unclean_share = 0.0
    drawn.reassign_every_us = drawn.recreate_every_us = drawn.min_isr_every_us = drawn.fail_dir_every_us = 0
    drawn.crash_every_us = drawn.crash_every_us or 1_000_000


def _draw_damage(rng: random.Random, plan: ClusterPlan) -> ClusterPlan:
    if rng.random() >= DAMAGED_SHARE or plan.replica_count < MIN_REPLICAS or plan.elects_unclean:
        return plan
    settings = {key: value for key, value in plan.settings.items() if key != "klamm.flush.before.ack"}
    configs = {"internal.segment.bytes": "1000"}
    return plan._replace(settings=settings, topic_configs=configs, min_insync_replicas=2, may_be_damaged=True)


def _draw_compaction(seed: int, plan: ClusterPlan, drawn: faults.BrokerFaults, *, is_directed: bool) -> ClusterPlan:
    """A compacted topic in some of the runs, by random numbers of their own. No committed record of it may be lost."""
    rng = random.Random(f"compaction {seed}")
    if not is_directed and rng.random() < COMPACTED_SHARE and not (plan.may_be_damaged or plan.elects_unclean):
        drawn.clean_every_us = rng.randrange(50_000, 500_000)
        drawn.unclean_share, drawn.min_isr_every_us = 0.0, 0
    if not drawn.clean_every_us:
        return plan
    settings = {key: value for key, value in plan.settings.items() if key != "klamm.flush.before.ack"}
    return plan._replace(settings=settings, elects_unclean=False, compaction=compaction.draw(rng))


def _draw_topic_configs(rng: random.Random) -> dict[str, str]:
    configs = {}
    if rng.random() < 0.4:
        configs["internal.segment.bytes"] = str(rng.choice([300, 1_000, 3_000]))
        if rng.random() < 0.3:
            configs["retention.bytes"] = str(rng.choice([500, 5_000]))
        if rng.random() < 0.3:
            configs["retention.ms"] = str(rng.choice([500, 3_000]))
    return configs


def _settle(world: BrokerWorld) -> None:
    """Without faults every replica joins the ISR, appends are acknowledged, and all logs become equal."""
    world.heal()
    wanted = world.acknowledged_count + 10
    if not world.run(world.now_us + LIVENESS_US, lambda: world.acknowledged_count >= wanted):
        raise InvariantViolatedError("no append is acknowledged after all faults ended")
    world.clients.produce_every_us = 0
    if world.compaction is not None:
        world.compaction.stop()
    transactions = world.transactions
    if transactions is not None:
        if not world.run(world.now_us + LIVENESS_US, transactions.is_over):
            raise InvariantViolatedError("a transaction does not end after all faults ended")
        transactions.check_closed()
    membership = world.membership
    if membership is not None:
        world.run(world.now_us + LIVENESS_US, membership.is_over)
        membership.check_over()
    sharing = world.sharing
    if sharing is not None:
        sharing.settle()
        world.run(world.now_us + LIVENESS_US, sharing.is_over)
        sharing.check_over()
    if not world.run(world.now_us + LIVENESS_US, world.is_settled):
        raise InvariantViolatedError("the replicas do not become equal after all faults ended")


def _report(seed: int, world: BrokerWorld, error: Exception) -> str:
    lines = [
        f"seed {seed}: {error!r}",
        f"replay: python -m klamm.testing.simulator --brokers --seed {seed} --trace",
    ]
    lines += (world.trace or [])[-TRACE_LINES_SHOWN:]
    return "\n".join(lines)
