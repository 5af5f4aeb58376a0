"""The faults of a simulated cluster of brokers, drawn from the seed so that runs differ (swarm testing)."""

import random
from dataclasses import dataclass


@dataclass(slots=True)
class BrokerFaults:
    """Chances are per message or flush; times are in microseconds of simulated time."""

    drop_chance: float = 0.0
    delay_us_max: int = 2_000
    slow_message_chance: float = 0.0
    slow_message_us_max: int = 1_000_000
    partition_every_us: int = 0  # 0: never
    crash_every_us: int = 0
    power_cut_share: float = 0.5  # of the crashes; the others keep the page cache
    away_us_max: int = 2_000_000  # of a crashed broker
    pause_every_us: int = 0  # a broker does not run for a while
    pause_us_max: int = 2_000_000
    slow_flush_chance: float = 0.0
    slow_flush_us_max: int = 1_000_000
    shutdown_every_us: int = 0  # a broker is stopped orderly, and starts again
    repeat_chance: float = 0.0  # an AlterPartition request arrives a second time
    repeat_fetch_chance: float = 0.0  # a follower's Fetch does
    repeat_us_max: int = 1_000_000
    reassign_every_us: int = 0  # a partition gets other replicas, or its reassignment is cancelled
    recreate_every_us: int = 0  # the topic is deleted, and created again under the same name
    min_isr_every_us: int = 0  # its min ISR is changed
    elect_every_us: int = 0  # preferred leaders are elected, or unclean ones
    unclean_share: float = 0.0  # of these elections
    role_delay_us_max: int = 1_000  # until a broker's fetchers learn of new roles
    stall_every_us: int = 0  # a broker receives no metadata for a while
    stall_us_max: int = 3_000_000
    delete_every_us: int = 0  # records are deleted up to some offset
    move_every_us: int = 0  # a replica is moved to another log directory
    fail_dir_every_us: int = 0  # a log directory fails, until its broker starts again
    transact_every_us: int = 0  # no fault: a transactional producer takes a step
    commit_offsets_chance: float = 0.0  # no fault: of such a step: it commits the offsets of a group
    member_every_us: int = 0  # no fault: a member of a consumer group joins, leaves, crashes, or pauses
    instance_share: float = 0.0  # no fault: of these members: they have an instance id
    pattern_share: float = 0.0  # no fault: of these members: they subscribe by a regular expression
    classic_share: float = 0.0  # no fault: of these members: they use the classic protocol
    streams_groups: int = 0  # no fault: with these members there are so many streams groups
    share_every_us: int = 0  # no fault: a member of a share group joins, leaves, crashes, or pauses
    effect_crash_chance: float = 0.0  # of an append of a coordinator: its broker crashes at once
    pause_controller_every_us: int = 0  # a controller does not run for a while
    pause_controller_us_max: int = 3_000_000
    clean_every_us: int = 0  # no fault: a broker cleans its compacted logs
    clean_crash_share: float = 0.0  # of these: the power is cut in between
    damage_chance: float = 0.0  # of a start: a bit has changed in a segment, once in a run

    def stop(self) -> None:
        """Stop all faults; ordinary delays and the cleaner stay."""
        delay_us_max, clean_every_us = min(self.delay_us_max, 20_000), self.clean_every_us
        self.__init__(delay_us_max=delay_us_max, clean_every_us=clean_every_us)  # type: ignore[misc]


def draw(rng: random.Random) -> BrokerFaults:
    """Faults for a run: each kind is left out in about half of the runs."""

    def maybe(value: float) -> float:
        return value if rng.random() < 0.5 else 0.0

    return BrokerFaults(
        drop_chance=maybe(rng.uniform(0.005, 0.1)),
        delay_us_max=rng.choice([500, 2_000, 20_000, 100_000]),
        slow_message_chance=maybe(0.02),
        partition_every_us=int(maybe(rng.uniform(1e6, 5e6))),
        crash_every_us=int(maybe(rng.uniform(3e5, 3e6))),
        power_cut_share=rng.random(),
        away_us_max=rng.choice([20_000, 300_000, 2_000_000]),
        pause_every_us=int(maybe(rng.uniform(1e6, 5e6))),
        slow_flush_chance=maybe(rng.uniform(0.01, 0.3)),
        shutdown_every_us=int(maybe(rng.uniform(1e6, 5e6))),
        repeat_chance=maybe(0.2),
        repeat_fetch_chance=maybe(0.05),
        repeat_us_max=rng.choice([20_000, 1_000_000, 5_000_000]),
        reassign_every_us=int(maybe(rng.uniform(3e5, 3e6))),
        recreate_every_us=int(rng.uniform(1e6, 5e6)) if rng.random() < 0.2 else 0,
        min_isr_every_us=int(rng.uniform(3e5, 3e6)) if rng.random() < 0.2 else 0,
        elect_every_us=int(maybe(rng.uniform(3e5, 3e6))),
        unclean_share=maybe(0.5),
        role_delay_us_max=rng.choice([1_000, 1_000, 100_000]),
        stall_every_us=int(maybe(rng.uniform(1e6, 5e6))),
        delete_every_us=int(rng.uniform(2e5, 3e6)) if rng.random() < 0.3 else 0,
        move_every_us=int(maybe(rng.uniform(2e5, 2e6))),
        fail_dir_every_us=int(maybe(rng.uniform(1e6, 5e6))),
    )
