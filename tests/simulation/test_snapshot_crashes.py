"""A replica that needs a snapshot crashes at each effect of the fetch, and catches up each time."""

import random

import pytest

from klamm.raft.config import RaftConfig
from klamm.testing.simulator.faults import Faults
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.watched_log import WatchedLog
from klamm.testing.simulator.world import World

CONFIG = RaftConfig(fetch_snapshot_max_bytes=60, fetch_max_bytes=200)


def quorum_with_a_lagging_replica():
    """Two of three voters continue, and clean their logs up to a snapshot, while the third is down."""
    world = World(random.Random(3), 3, 0, Faults(), CONFIG)
    world.begin()
    assert world.run(20_000_000, lambda: len(world.acknowledged) >= 20)
    (leader,) = world.leaders()
    behind = next(replica for replica in world.replicas.values() if replica is not leader)
    behind.crash(0, write_survives=False)
    count = len(world.acknowledged) + 20
    assert world.run(world.now_us + 20_000_000, lambda: len(world.acknowledged) >= count)
    for replica in world.replicas.values():
        if replica.is_up:
            replica.begin_snapshot(bytes([replica.id]) * 100)
            replica.finish_snapshot()
            replica.clean(replica.log.snapshots()[-1].id)
            assert replica.log.start_offset > behind.log.end_offset
    return world, behind


def catch_up(crash_after_effects, power_cut):
    """Start the lagging replica and crash it; returns whether it crashed before it had caught up."""
    world, behind = quorum_with_a_lagging_replica()
    world.faults.power_cut_share = float(power_cut)
    behind.crash_after_effects = crash_after_effects
    world.start_replica(behind)
    life = behind.life
    target = max(replica.high_watermark for replica in world.replicas.values())

    def has_caught_up():
        return behind.is_up and behind.high_watermark >= target and behind.applied >= target

    assert world.run(world.now_us + 30_000_000, has_caught_up), f"not after a crash at effect {crash_after_effects}"
    assert behind.log.start_offset > 0
    return behind.life > life


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_at_any_effect_of_an_install(power_cut):
    crash_after_effects = 0
    while catch_up(crash_after_effects, power_cut):
        crash_after_effects += 1
    assert crash_after_effects >= 13, "messages, slices, the check, both halves of the install: each may be the last"


def the_log_goes_before_the_snapshot_is_durable(patch):
    def careless(self, snapshot_id):
        received = self.received
        self.begin_at(snapshot_id.offset)
        self._watcher.chains = [None] * snapshot_id.offset
        self._watcher.before_change()
        self.received = received
        install(self, snapshot_id)

    install = WatchedLog.install_received_snapshot
    patch.setattr(WatchedLog, "install_received_snapshot", careless)


def test_replacing_the_log_before_the_snapshot_is_durable_is_detected(monkeypatch):
    the_log_goes_before_the_snapshot_is_durable(monkeypatch)
    with pytest.raises(InvariantViolatedError, match="its log begins at"):
        any(not catch_up(crash_after_effects, power_cut=True) for crash_after_effects in range(20))
