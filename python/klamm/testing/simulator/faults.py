"""The faults of a simulated run and their frequency, drawn from the seed so that runs differ (swarm testing)."""

import random
from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Faults:
    """Chances are per message, step or write; times are in microseconds of simulated time."""

    drop_chance: float = 0.0
    duplicate_chance: float = 0.0
    delay_us_max: int = 2_000
    slow_message_chance: float = 0.0  # a message that takes up to a second
    partition_every_us: int = 0  # 0: never
    crash_every_us: int = 0
    power_cut_share: float = 0.5  # of the crashes; the others keep the page cache
    crash_in_step_chance: float = 0.0  # before one of the effects of a step
    crash_in_write_chance: float = 0.0  # while the disk works
    strike_leader_chance: float = 0.0  # a new leader crashes or is cut off soon after its election
    away_us_max: int = 3_000_000  # of a crashed replica
    slow_disk_chance: float = 0.0
    slow_disk_us_max: int = 3_000_000
    resign_every_us: int = 0
    snapshot_every_us: int = 0  # a replica writes a snapshot
    clean_share: float = 0.5  # of the snapshots: the log before them is deleted
    snapshot_bytes_max: int = 100  # of filler
    damaged_slice_chance: float = 0.0  # of the slices of a snapshot: the disk loses or changes some of their bytes
    damage_every_us: int = 0  # a static voter restarts, and knows that its log has lost records
    wipe_every_us: int = 0  # a replica restarts with an empty disk, if its quorum survives that
    reconfigure_every_us: int = 0  # an operator changes the voters, or moves one (dynamic quorums)
    stall_change_chance: float = 0.0  # of the changes of voters: the leader is cut off until it times out
    refuse_chance: float = 0.0  # of the messages to a stopped process or an old port: its host refuses the connection
    shutdown_every_us: int = 0  # a replica is stopped orderly, and starts again
    clock_rates: dict[int, float] = field(default_factory=dict)
    clock_jump_every_us: int = 0
    notice_crash_chance: float = 0.0  # another replica notices the end of a process
    false_alarm_every_us: int = 0  # a replica wrongly assumes such an end

    def hasten(self, factor: float) -> None:
        """Multiply the frequency of all faults and divide their duration; message delays are unchanged."""
        for name in _TIMES:
            setattr(self, name, int(getattr(self, name) / factor))

    def stop(self) -> None:
        """Stop all faults; clocks keep their rates, and snapshots are written as before."""
        self.__init__(  # type: ignore[misc]
            clock_rates=self.clock_rates,
            snapshot_every_us=self.snapshot_every_us,
            clean_share=self.clean_share,
            snapshot_bytes_max=self.snapshot_bytes_max,
        )


# Without message delays, which are independent of the frequency of faults.
_TIMES = tuple(
    field.name
    for field in fields(Faults)
    if field.name.endswith(("_every_us", "_us_max")) and field.name != "delay_us_max"
)


def draw(rng: random.Random, node_ids: list[int]) -> Faults:
    """Faults for a run: each kind is left out in about half of the runs."""

    def maybe(value: float) -> float:
        return value if rng.random() < 0.5 else 0.0

    return Faults(
        drop_chance=maybe(rng.uniform(0.01, 0.3)),
        duplicate_chance=maybe(rng.uniform(0.01, 0.2)),
        delay_us_max=rng.choice([500, 2_000, 20_000, 200_000]),
        slow_message_chance=maybe(0.02),
        partition_every_us=int(maybe(rng.uniform(1e6, 8e6))),
        crash_every_us=int(maybe(rng.uniform(5e5, 5e6))),
        power_cut_share=rng.random(),
        crash_in_step_chance=maybe(rng.uniform(0.0005, 0.01)),
        strike_leader_chance=maybe(rng.uniform(0.2, 0.9)),
        slow_disk_chance=maybe(rng.uniform(0.01, 0.3)),
        resign_every_us=int(maybe(rng.uniform(1e6, 5e6))),
        clock_rates={node_id: rng.uniform(0.8, 1.25) for node_id in node_ids} if rng.random() < 0.5 else {},
        clock_jump_every_us=int(maybe(rng.uniform(1e6, 5e6))),
        snapshot_every_us=int(maybe(rng.uniform(5e4, 1e6))),
        clean_share=rng.random(),
        snapshot_bytes_max=rng.choice([1, 100, 1_000]),
        damaged_slice_chance=maybe(rng.uniform(0.01, 0.2)),
        wipe_every_us=int(maybe(rng.uniform(2e5, 2e6))),
        notice_crash_chance=maybe(rng.uniform(0.3, 1.0)),
        false_alarm_every_us=int(maybe(rng.uniform(1e5, 3e6))),
        stall_change_chance=maybe(rng.uniform(0.1, 0.5)),
        refuse_chance=maybe(rng.uniform(0.3, 1.0)),
        shutdown_every_us=int(maybe(rng.uniform(1e6, 5e6))),
        crash_in_write_chance=maybe(rng.uniform(0.001, 0.01)),
    )
