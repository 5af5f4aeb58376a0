"""ElectLeaders: elections on request, and the responses to clients (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from klamm.controller.leadership.elections import ElectionManager
from klamm.controller.result import Result, check_record_count
from klamm.controller.speculation import Speculation
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.topics import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

Outcomes = dict[tuple[bytes, int], ErrorCode]

_MESSAGES: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "The partition has the leader already.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica that may lead is available.",
}


def elect_leaders(
    elections: ElectionManager, state: Speculation, request: ElectLeadersRequest
) -> Result[ElectLeadersResponse]:
    """Elect leaders on request. Raises INVALID_REQUEST, or POLICY_VIOLATION for too many."""
    election = _election(request.election_type)
    wanted = None if request.topic_partitions is None else _RequestedPartitions(state, request)
    found = elections.at(state).elect_leaders(election, None if wanted is None else wanted.partitions)
    records = [record for *_, record in found if record is not None]
    check_record_count(records)
    outcomes = {(topic_id, index): ErrorCode(code) for topic_id, index, code, _ in found}
    results = _results_of_all(state, outcomes) if wanted is None else wanted.results(outcomes)
    return Result(ElectLeadersResponse(tuple(results)), records, is_atomic=False)


def _election(election_type: int) -> Literal["preferred", "unclean"]:
    match election_type:
        case ElectionType.PREFERRED:
            return "preferred"
        case ElectionType.UNCLEAN:
            return "unclean"
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {other}")


def _results_of_all(state: Speculation, outcomes: Outcomes) -> Iterator[ReplicaElectionResult]:
    """The results for all partitions, without those that already have the requested leader; their topics remain."""
    by_topic: dict[str, list[PartitionResult]] = {name: [] for name in state.image.topic_names()}
    for (topic_id, index), code in outcomes.items():
        if code is not ErrorCode.ELECTION_NOT_NEEDED:
            name = state.image.topic_name(topic_id)
            assert name is not None, "the image has just named its partitions"
            by_topic[name].append(PartitionResult(index, code, _MESSAGES.get(code)))
    return (ReplicaElectionResult(name, tuple(results)) for name, results in by_topic.items())


class _RequestedPartitions:
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
        return PartitionResult(index, code, f"No such partition as {topic}-{index}" if unknown else _MESSAGES.get(code))
