"""Leader elections: on request, by the clock, and as what happens to brokers asks for (facts 5.3).

The engine elects, for one partition or a hundred thousand; here stands what is asked of it, and what clients are told.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from klamm._engine import Elections
from klamm.controller.result import Result, check_record_count
from klamm.controller.speculation import Speculation
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.topics import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

MAX_ELECTIONS_PER_IMBALANCE: Final = 1_000
"""Elections that a periodic task does at once, before others get their turn."""


class BrokerEvent(enum.Enum):
    """What happened to a broker, in the engine's words."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    UNREGISTERED = "unregistered"
    UNCLEAN_SHUTDOWN = "unclean_shutdown"


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """The values of the controller's own node that count where neither topic nor cluster sets any."""

    node_id: int
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False


class ElectionManager:
    """Asks the engine for elections."""

    def __init__(self, settings: ElectionSettings) -> None:
        self._settings: Final = settings

    def _elections(self, state: Speculation) -> Elections:
        return Elections(
            state.image,
            node_id=self._settings.node_id,
            min_insync_replicas=self._settings.min_insync_replicas,
            unclean_leader_election_enable=self._settings.unclean_leader_election_enable,
        )

    def for_broker(self, state: Speculation, event: BrokerEvent, broker_id: int) -> list[bytes]:
        """The partitions' records that follow from what happens to a broker; its own record is the caller's."""
        return self._elections(state).for_broker(event.value, broker_id)

    def for_offline_dirs(self, state: Speculation, broker_id: int, dirs: Sequence[bytes]) -> list[bytes]:
        """The partitions' records that follow from directories going offline."""
        return self._elections(state).for_offline_dirs(broker_id, dirs)

    def elect_preferred(self, state: Speculation) -> Result[bool]:
        """Bring leaders back to first replicas; the answer says whether there may be more to do."""
        if state.image.imbalanced_partition_count == 0:
            return Result(False)
        records = self._elections(state).preferred_leaders(MAX_ELECTIONS_PER_IMBALANCE)
        return Result(len(records) >= MAX_ELECTIONS_PER_IMBALANCE, records, is_atomic=False)

    def elect_unclean(self, state: Speculation) -> Result[bool]:
        """Give leaderless partitions a leader, where their topic allows one that may lack records."""
        if state.image.leaderless_partition_count == 0:
            return Result(False)
        records = self._elections(state).unclean_leaders(MAX_ELECTIONS_PER_IMBALANCE)
        return Result(len(records) >= MAX_ELECTIONS_PER_IMBALANCE, records, is_atomic=False)

    def elect(self, state: Speculation, request: ElectLeadersRequest) -> Result[ElectLeadersResponse]:
        """Elect leaders on request (KIP-460). Raises INVALID_REQUEST, or POLICY_VIOLATION for too many."""
        election = _election(request.election_type)
        wanted = None if request.topic_partitions is None else _Wanted(state, request)
        found = self._elections(state).elect_leaders(election, None if wanted is None else wanted.partitions)
        records = [record for *_, record in found if record is not None]
        check_record_count(records)
        outcomes = {(topic_id, index): ErrorCode(code) for topic_id, index, code, _ in found}
        results = _results_of_all(state, outcomes) if wanted is None else wanted.results(outcomes)
        return Result(ElectLeadersResponse(tuple(results)), records, is_atomic=False)


Outcomes = dict[tuple[bytes, int], ErrorCode]


def _election(election_type: int) -> Literal["preferred", "unclean"]:
    match election_type:
        case ElectionType.PREFERRED:
            return "preferred"
        case ElectionType.UNCLEAN:
            return "unclean"
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {other}")


def _results_of_all(state: Speculation, outcomes: Outcomes) -> Iterator[ReplicaElectionResult]:
    """The answer for all partitions: who has the wanted leader already is left out."""
    by_topic: dict[bytes, list[PartitionResult]] = {}
    for (topic_id, index), code in outcomes.items():
        if code is not ErrorCode.ELECTION_NOT_NEEDED:
            by_topic.setdefault(topic_id, []).append(PartitionResult(index, code))
    for topic_id, results in by_topic.items():
        name = state.image.topic_name(topic_id)
        assert name is not None, "the image has just named its partitions"
        yield ReplicaElectionResult(name, tuple(results))


class _Wanted:
    """The partitions of a request that names them, with the ids of their topics."""

    def __init__(self, state: Speculation, request: ElectLeadersRequest) -> None:
        self._state = state
        self._topics = [(each, state.image.topic_id(each.topic)) for each in request.topic_partitions or ()]

    @property
    def partitions(self) -> list[tuple[bytes, int]]:
        known = ((topic_id, topic.partitions) for topic, topic_id in self._topics if topic_id is not None)
        return list(dict.fromkeys((topic_id, index) for topic_id, indexes in known for index in indexes))

    def results(self, outcomes: Outcomes) -> Iterable[ReplicaElectionResult]:
        for topic, topic_id in self._topics:
            results = (self._result(topic.topic, topic_id, index, outcomes) for index in topic.partitions)
            yield ReplicaElectionResult(topic.topic, tuple(results))

    def _result(self, topic: str, topic_id: bytes | None, index: int, outcomes: Outcomes) -> PartitionResult:
        if topic_id is None:
            return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
        code = outcomes[topic_id, index]
        unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionResult(index, code, f"No such partition as {topic}-{index}" if unknown else None)
