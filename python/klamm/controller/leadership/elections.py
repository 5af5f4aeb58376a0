"""Leader elections, periodic and after broker changes (`PartitionChangeBuilder`). `election_requests` has the rest.

The engine runs the elections, for one partition or a hundred thousand; this module has the requests to it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from klamm._engine.controller import Elections
from klamm.controller.result import Result
from klamm.controller.speculation import Speculation
from klamm.protocol.value import Value

MAX_ELECTIONS_PER_IMBALANCE: Final = 1_000
"""The maximum number of elections of a periodic task in one turn."""
PART_RECORDS_MAX: Final = 5_000
PART_PARTITIONS_MAX: Final = 200_000
"""The maximum work of a large operation in one turn: some tens of milliseconds."""


class BrokerEvent(enum.Enum):
    """An event of a broker, named as in the engine."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    UNREGISTERED = "unregistered"
    UNCLEAN_SHUTDOWN = "unclean_shutdown"


class ElectionSettings(Value):
    """The values of the controller's own node that count where neither topic nor cluster sets any."""

    node_id: int
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False


class ElectionManager:
    """Asks the engine for elections."""

    def __init__(self, settings: ElectionSettings) -> None:
        self._settings: Final = settings

    def at(self, state: Speculation) -> Elections:
        """The engine's elections over the current image."""
        return Elections(
            state.image,
            node_id=self._settings.node_id,
            min_insync_replicas=self._settings.min_insync_replicas,
            unclean_leader_election_enable=self._settings.unclean_leader_election_enable,
        )

    def part_for_broker(
        self, state: Speculation, event: BrokerEvent, broker_id: int, place: tuple[int, int]
    ) -> tuple[list[bytes], tuple[int, int] | None]:
        """The partitions' records that follow from an event of a broker; the caller writes the broker's own record.

        Returns a part of them, from a place on, (0, 0) at first; and where the next part begins, None after the last.
        """
        return self.at(state).part_for_broker(
            event.value,
            broker_id,
            place,
            records_max=PART_RECORDS_MAX,
            partitions_max=PART_PARTITIONS_MAX,
        )

    def for_offline_dirs(self, state: Speculation, broker_id: int, dirs: Sequence[bytes]) -> list[bytes]:
        """The partitions' records that follow from directories going offline."""
        return self.at(state).for_offline_dirs(broker_id, dirs)

    def elect_preferred(self, state: Speculation) -> Result[bool]:
        """Elect preferred leaders; the result says whether there may be more to do."""
        if state.image.imbalanced_partition_count == 0:
            return Result(False)
        records = self.at(state).preferred_leaders(MAX_ELECTIONS_PER_IMBALANCE)
        return Result(len(records) >= MAX_ELECTIONS_PER_IMBALANCE, records, is_atomic=False)

    def elect_unclean(self, state: Speculation) -> Result[bool]:
        """Elect leaders of leaderless partitions, if their topics allow unclean elections."""
        if state.image.leaderless_partition_count == 0:
            return Result(False)
        records = self.at(state).unclean_leaders(MAX_ELECTIONS_PER_IMBALANCE)
        return Result(len(records) >= MAX_ELECTIONS_PER_IMBALANCE, records, is_atomic=False)
