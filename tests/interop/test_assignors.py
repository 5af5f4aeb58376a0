"""Random groups over several rounds: our assignors, hashes and patterns give the same results as Apache Kafka's.

Apache Kafka iterates over hash maps. Topic ids are chosen in each round so that their hash order is their sort order:
the hashes of topics and partitions are 0, 1, 2, ... Members, targets and subscriptions are passed in order.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from klamm._engine.groups import TopicPattern, assign, group_hash, topic_hash
from klamm._engine.metadata import Image
from klamm.protocol.generated.metadata_records import (
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode_at,
)
from tests.interop.java_program import JavaProgram, java_program
from tests.support.foreign import require

GROUPS_OF_A_KIND: Final = 400
ROUNDS: Final = 6
BUCKETS: Final = 16
"""The buckets of an empty hash set of Java's; up to as many partitions and members are in order in it."""
METADATA_VERSION: Final = 30

Target = dict[int, list[int]]
"""Partitions by the number of the topic."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[JavaProgram]:
    """Apache Kafka's assignors in a JVM."""
    require("java", "javac", "mvn")
    with java_program("Assignors.java") as running:
        yield running


@dataclass
class Member:
    """A member of a random group."""

    instance_id: str | None
    topics: list[int]
    target: Target = field(default_factory=dict)


@dataclass
class Group:
    """A random group: the partition counts of its topics, and its members in the coordinator's order."""

    draw: random.Random
    assignor: str
    homogeneous: bool
    topics_max: int = 12
    partitions_max: int = 24
    members_max: int = 20
    counts: list[int] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    initialized: dict[int, list[int]] | None = None
    """What may be assigned; None: everything."""
    _named: int = 0

    def __post_init__(self) -> None:
        if self.assignor == "simple" and self.draw.random() < 0.3:
            self.initialized = {}
        self.counts = [self.draw.randint(1, self.partitions_max) for _ in range(self.draw.randint(1, self.topics_max))]

    def change(self) -> None:
        """Members join and leave, subscriptions change, topics are created or grow."""
        draw = self.draw
        for name in list(self.members):
            if draw.random() < 0.15:
                del self.members[name]
        room = self.members_max - len(self.members)
        for _ in range(draw.randint(0, min(room, 6)) if self.members else draw.randint(1, room)):
            self._named += 1
            instance = f"instance-{draw.randint(0, 99)}-{self._named}" if draw.random() < 0.3 else None
            self.members[f"{draw.randint(0, 99):02}-{self._named}"] = Member(instance, self._subscription())
        if not self.members:
            self.members["only"] = Member(None, self._subscription())
        if draw.random() < 0.3:
            self.counts[draw.randrange(len(self.counts))] += draw.randint(0, 3)
        if draw.random() < 0.2 and len(self.counts) < self.topics_max:
            self.counts.append(draw.randint(1, self.partitions_max))
        shared = self._subscription()
        for member in self.members.values():
            if self.homogeneous:
                member.topics = shared
            elif draw.random() < 0.3:
                member.topics = self._subscription()
        order = list(self.members)
        draw.shuffle(order)
        self.members = {name: self.members[name] for name in order}
        if self.initialized is not None:
            # As in the coordinator, partitions are only added.
            for topic, count in enumerate(self.counts):
                added = draw.sample(range(count), draw.randint(0, count))
                self.initialized[topic] = sorted({*self.initialized.get(topic, []), *added})

    def _subscription(self) -> list[int]:
        topics = range(len(self.counts))
        return sorted(self.draw.sample(topics, self.draw.randint(0 if self.draw.random() < 0.1 else 1, len(topics))))

    @property
    def subscribed(self) -> list[int]:
        """The topics to which any member subscribes."""
        return sorted({topic for member in self.members.values() for topic in member.topics})

    @property
    def is_in_order(self) -> bool:
        """Whether Java's hash maps iterate over these ids in sort order."""
        if self.assignor != "simple":
            return True
        partitions = [self.counts[topic] for topic in self.subscribed]
        total = sum(partitions) if self.homogeneous else max(partitions, default=0)
        return total <= BUCKETS and len(self.members) <= BUCKETS and self.initialized is None


def ids_of(group: Group) -> list[bytes]:
    """Ids of the topics, in ascending order, with hashes that keep Java's maps of them in this order."""
    draw, subscribed = group.draw, group.subscribed
    place, first = {}, 0
    for number, topic in enumerate(subscribed):
        # A set of ids is in the order of their hashes; one of partitions is in the order of 31 * (hash of the id) +
        # partition.
        place[topic] = number if group.assignor != "simple" else first * pow(31, -1, 1 << 32) % (1 << 32)
        first += group.counts[topic]
    high = sorted(draw.getrandbits(63) - (1 << 62) for _ in group.counts)
    ids = []
    for topic, signed in enumerate(high):
        upper = signed % (1 << 64)
        mixed = draw.getrandbits(32)
        # Uuid.hashCode: XOR of the halves of (upper ^ lower).
        both = mixed << 32 | (mixed ^ place.get(topic, 7 + topic))
        ids.append((upper << 64 | (upper ^ both)).to_bytes(16, "big"))
    return ids


def text_of(topic_id: bytes) -> str:
    """An id in Java's notation."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def ours(group: Group, ids: Sequence[bytes]) -> list[Target]:
    """The new targets from our engine."""
    members = [
        (
            name,
            member.instance_id,
            [ids[at] for at in member.topics],
            {ids[at]: found for at, found in member.target.items()},
        )
        for name, member in group.members.items()
    ]
    assignable = None if group.initialized is None else {ids[at]: found for at, found in group.initialized.items()}
    counts = {ids[at]: group.counts[at] for at in group.subscribed}
    number = {topic_id: at for at, topic_id in enumerate(ids)}
    found = assign(group.assignor, members, counts, homogeneous=group.homogeneous, assignable=assignable)
    return [{number[topic_id]: list(partitions) for topic_id, partitions in target.items()} for target in found]


def theirs(kafka: JavaProgram, group: Group, ids: Sequence[bytes]) -> list[Target]:
    """The new targets from Apache Kafka, without empty lists and without topics that have no subscriber."""

    def by_text(partitions: Mapping[int, Any]) -> dict[str, Any]:
        return {text_of(ids[at]): found for at, found in sorted(partitions.items())}

    answer = kafka.ask(
        ask="assign",
        assignor=group.assignor,
        homogeneous=group.homogeneous,
        partitions=by_text(dict(enumerate(group.counts))),
        assignable=None if group.initialized is None else by_text(group.initialized),
        members=[
            {
                "id": name,
                "instance": member.instance_id,
                "topics": [text_of(ids[at]) for at in member.topics],
                "target": by_text(member.target),
            }
            for name, member in group.members.items()
        ],
    )
    assert "crash" not in answer, answer
    number = {text_of(topic_id): at for at, topic_id in enumerate(ids)}
    return [
        {
            number[text]: partitions
            for text, partitions in answer[name].items()
            if partitions and number[text] in group.subscribed
        }
        for name in group.members
    ]


def check_bounds(group: Group, targets: Sequence[Target]) -> None:
    """Bounds in any iteration order: members get only subscribed topics, and partitions not too many members."""
    for member, target in zip(group.members.values(), targets, strict=True):
        assert set(target) <= set(member.topics)
    for topic in group.subscribed:
        counted = group.subscribed if group.homogeneous else [topic]
        initialized = group.initialized
        partitions = sum(len(range(group.counts[at]) if initialized is None else initialized[at]) for at in counted)
        subscribers = sum(topic in member.topics for member in group.members.values())
        sharing = -(-subscribers // partitions) if partitions else 0
        owned = [partition for target in targets for partition in target.get(topic, [])]
        assert max((owned.count(partition) for partition in owned), default=0) <= sharing


@pytest.mark.parametrize("homogeneous", [True, False])
@pytest.mark.parametrize("assignor", ["uniform", "range", "simple"])
def test_assignments_are_those_of_apache_kafka(kafka: JavaProgram, assignor: str, homogeneous: bool) -> None:
    compared = 0
    for seed in range(GROUPS_OF_A_KIND):
        small = (
            {"topics_max": 4, "partitions_max": 5, "members_max": BUCKETS} if assignor == "simple" and seed % 5 else {}
        )
        group = Group(random.Random(f"{assignor} {homogeneous} {seed}"), assignor, homogeneous, **small)
        in_order = 0
        for turn in range(ROUNDS):
            group.change()
            ids = ids_of(group)
            found, expected = ours(group, ids), theirs(kafka, group, ids)
            if group.is_in_order:
                assert found == expected, f"seed {seed}, round {turn}: {group}"
                in_order += 1
            else:
                check_bounds(group, found)
                check_bounds(group, expected)
            for member, target in zip(group.members.values(), expected, strict=True):
                member.target = target
        compared += in_order > 1
    assert compared >= GROUPS_OF_A_KIND * (0.5 if assignor == "simple" else 1)


def test_large_groups(kafka: JavaProgram) -> None:
    for assignor, homogeneous in (("uniform", True), ("uniform", False), ("range", True), ("range", False)):
        draw = random.Random(f"{assignor} {homogeneous}")
        sizes = {"topics_max": 60, "partitions_max": 100, "members_max": 400}
        group = Group(draw, assignor, homogeneous, **sizes)
        for turn in range(3):
            group.change()
            ids = ids_of(group)
            found, expected = ours(group, ids), theirs(kafka, group, ids)
            assert found == expected, f"{assignor} {homogeneous} {turn}"
            for member, target in zip(group.members.values(), expected, strict=True):
                member.target = target


def records_of_topics(draw: random.Random) -> list[MetadataRecord]:
    """Brokers with and without racks, and topics with replicas on them."""
    racks = [None, "", "b", "a", "rack-ü", "rack-𝄞", "rack-\uffee"]
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(
            broker_id=broker,
            broker_epoch=broker,
            incarnation_id=draw.randbytes(16),
            rack=draw.choice(racks),
            end_points=(),
            features=(),
        )
        for broker in range(5)
    ]
    for number in range(draw.randint(1, 8)):
        topic_id = draw.randbytes(16)
        records.append(TopicRecord(name=f"{draw.choice('abz')}.topic-{number}", topic_id=topic_id))
        for partition in range(draw.randint(1, 40)):
            replicas = tuple(draw.sample(range(7), draw.randint(1, 4)))
            lists = {"removing_replicas": (), "adding_replicas": ()}
            record = PartitionRecord(
                partition_id=partition, topic_id=topic_id, replicas=replicas, isr=replicas, leader=replicas[0], **lists
            )
            records.append(record)
    return records


def test_hashes_are_those_of_apache_kafka(kafka: JavaProgram) -> None:
    for seed in range(200):
        records = [encode_at(record, METADATA_VERSION) for record in records_of_topics(random.Random(seed))]
        image = Image().apply(records)
        expected = kafka.ask(ask="hash", records=[base64.b64encode(record).decode() for record in records])
        found = {name: topic_hash(image, name) for name in image.topic_names()}
        assert {name: str(number) for name, number in found.items()} == expected["topics"], seed
        assert (
            str(group_hash((name, number) for name, number in found.items() if number is not None)) == expected["group"]
        )


NAMES_WITHOUT_SPACES: Final = r"""
a b ab aab abc A topic-1 topic.1 topic_1 __consumer_offsets 0 a1 Kafka k - [ ] & ^ é É λ ſ K { a{,2} 𝄞 \ aaaaaa
"""
NAMES: Final = ["", "a b", "\t", "\n", "\v", "a\nb", *NAMES_WITHOUT_SPACES.split()]
SYNTAX: Final = r"""
a b ab topic 1 . - _ | ( ) (?: (?i) (?i: (?s) (?-i) (?U) (?m) * + ? {2} {1,2} {,2} {2,} {2,1} {1001} *? ^ $ \A \z \b \B
\d \D \s \S \w \W \. \- \_ \Q \E \x41 \x{e9} \101 \1 \t \C [ ] [a-c] [^a] [] [^]a] [a- [[:alpha:]] [[:^digit:]x] [a&&b]
[\d-] [--a] [^\W] \pL \p{Greek} \P{Lu} \p{^L} \pN \p{Foo} [\p{Lu}\d] (?P<n> (?<n> (?= \ : & é
"""
PIECES: Final = SYNTAX.split()


def matched_or_error(pattern: str) -> list[bool] | str:
    """Whether each name matches, or why the pattern is invalid."""
    try:
        compiled = TopicPattern(pattern)
    except ValueError as error:
        return str(error)
    return [compiled.matches(name) for name in NAMES]


def test_patterns_match_as_in_re2j(kafka: JavaProgram) -> None:
    draw = random.Random(7)
    refused = 0
    for number in range(6000):
        pattern = "".join(draw.choice(PIECES) for _ in range(draw.randint(1, 2 + number % 7)))
        expected = kafka.ask(ask="match", pattern=pattern, names=NAMES)
        found = matched_or_error(pattern)
        if isinstance(found, list):
            assert expected.get("matched") == found, repr(pattern)
        elif found.startswith("not supported"):
            refused += 1
        else:
            error = expected.get("error", "").replace("regexp/syntax: internal error", "unexpected )")
            assert error == found.split(": `")[0], f"{pattern!r}: {found}"
    assert refused < 300, "only repetitions after flags"
