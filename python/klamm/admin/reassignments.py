"""Moves replicas of partitions to other brokers (KIP-455): plan, begin, cancel, list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import Client, broker_error, check
from klamm.admin.topics import TIMEOUT_MS, Topic
from klamm.client import ClientError
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from klamm.protocol.topic_partition import TopicPartition

ALTER_VERSION_MAX: Final = 1
LIST_VERSION_MAX: Final = 0
PARTITIONS_PER_REQUEST: Final = 5_000
"""The controller makes one batch of a request, which has at most 10,000 records."""

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that is being reassigned; `replicas` includes those that are added and removed."""

    topic: str
    partition: int
    replicas: Replicas
    adding: Replicas
    removing: Replicas


def ongoing(client: Client, topics: Sequence[Topic] | None = None) -> list[Reassignment]:
    """The reassignments of some topics, or of all, sorted. Raises ClientError."""
    wanted = None
    if topics is not None:
        wanted = tuple(
            ListPartitionReassignmentsTopics(topic.name, tuple(one.index for one in topic.partitions))
            for topic in topics
        )
    request = ListPartitionReassignmentsRequest(wanted, TIMEOUT_MS)
    answer = client.any.ask(request, ListPartitionReassignmentsResponse, LIST_VERSION_MAX)
    check(answer.error_code, "reassignments", answer.error_message)
    found = (
        Reassignment(topic.name, one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in answer.topics
        for one in topic.partitions
    )
    return sorted(found, key=lambda one: (one.topic, one.partition))


def reassign(
    client: Client, wanted: Mapping[TopicPartition, Replicas | None], *, may_change_factor: bool = True
) -> None:
    """Begin a reassignment of each partition, or cancel it if its replicas are None.

    Unless `may_change_factor`, the controller refuses another number of replicas (KIP-860). Raises ClientError, which
    names every partition that was refused; the others are reassigned.
    """
    places = list(wanted)
    refused: list[str] = []
    code = ErrorCode.NONE
    for start in range(0, len(places), PARTITIONS_PER_REQUEST):
        part = {place: wanted[place] for place in places[start : start + PARTITIONS_PER_REQUEST]}
        request = AlterPartitionReassignmentsRequest(_by_topic(part), TIMEOUT_MS, may_change_factor)
        answer = client.any.ask(request, AlterPartitionReassignmentsResponse, ALTER_VERSION_MAX)
        check(answer.error_code, "reassignment", answer.error_message)
        for topic in answer.responses:
            for one in topic.partitions:
                if one.error_code is not ErrorCode.NONE:
                    code = one.error_code
                    refused.append(f"{topic.name}-{one.partition_index}: {one.error_message or ''} ({code.name})")
    if refused:
        raise broker_error(code, "\n".join(refused))


def _by_topic(wanted: Mapping[TopicPartition, Replicas | None]) -> tuple[ReassignableTopic, ...]:
    by_topic: dict[str, list[ReassignablePartition]] = {}
    for place, replicas in wanted.items():
        by_topic.setdefault(place.topic, []).append(ReassignablePartition(place.partition, replicas))
    return tuple(ReassignableTopic(name, tuple(partitions)) for name, partitions in by_topic.items())


def racks(client: Client) -> dict[int, str | None]:
    """The brokers that are not fenced, with their racks."""
    return {broker.node_id: broker.rack for broker in client.metadata().brokers}


class Plan:
    """Replicas of partitions spread over brokers, with few of them moved."""

    def __init__(
        self, current: Mapping[TopicPartition, Replicas], brokers: Mapping[int, str | None], factor: int | None
    ) -> None:
        """`factor`: the number of replicas of each partition; None keeps it. Raises ClientError if it cannot be."""
        self._brokers = brokers
        self.replicas: dict[TopicPartition, list[int]] = {}
        wanted = {place: factor or len(replicas) for place, replicas in current.items()}
        most = max(wanted.values(), default=0)
        if most > len(brokers):
            raise ClientError(f"{most} replicas of a partition need as many brokers, and there are {len(brokers)}")
        for place, replicas in current.items():
            self.replicas[place] = [each for each in replicas if each in brokers][: wanted[place]]
        self._load = Counter(dict.fromkeys(brokers, 0))
        self._load.update(each for replicas in self.replicas.values() for each in replicas)
        for place, kept in self.replicas.items():
            while len(kept) < wanted[place]:
                self._add(kept)
        self._even_out()
        self._spread_leaders(current)

    def _add(self, replicas: list[int]) -> None:
        chosen = self._best(replicas, self._brokers.keys() - set(replicas))
        replicas.append(chosen)
        self._load[chosen] += 1

    def _best(self, others: Collection[int], candidates: Iterable[int]) -> int:
        """A broker of a rack that the other replicas are not in, if there is one; of those the least loaded."""
        used = self._racks(others)
        return min(candidates, key=lambda each: (self._rack(each) in used, self._load[each], each))

    def _rack(self, broker_id: int) -> str:
        return self._brokers[broker_id] or f"broker {broker_id}"

    def _racks(self, replicas: Iterable[int]) -> set[str]:
        return set(map(self._rack, replicas))

    def _even_out(self) -> None:
        """Move replicas from the most to the least loaded brokers, as long as that makes the loads more even."""
        for place, replicas in self.replicas.items():
            for at, old in enumerate(replicas):
                others = [*replicas[:at], *replicas[at + 1 :]]
                candidates = self._brokers.keys() - set(replicas)
                if not candidates:
                    continue
                new = self._best(others, candidates)
                loses_rack = len(self._racks([*others, new])) < len(self._racks(replicas))
                if self._load[old] - self._load[new] > 1 and not loses_rack:
                    self.replicas[place][at] = new
                    self._load[old] -= 1
                    self._load[new] += 1

    def _spread_leaders(self, current: Mapping[TopicPartition, Replicas]) -> None:
        """Of each partition that changes, let the replica lead whose broker leads the fewest."""
        changed = [place for place, replicas in self.replicas.items() if tuple(replicas) != current[place]]
        led = Counter(self.replicas[place][0] for place in self.replicas.keys() - set(changed))
        for place in changed:
            replicas = self.replicas[place]
            leader = min(replicas, key=lambda each: (led[each], replicas.index(each)))
            led[leader] += 1
            replicas.remove(leader)
            replicas.insert(0, leader)


def planned(
    current: Mapping[TopicPartition, Replicas], brokers: Mapping[int, str | None], factor: int | None = None
) -> dict[TopicPartition, Replicas]:
    """The partitions whose replicas change, and to what. Raises ClientError."""
    plan = Plan(current, brokers, factor).replicas
    return {place: tuple(replicas) for place, replicas in plan.items() if tuple(replicas) != current[place]}
