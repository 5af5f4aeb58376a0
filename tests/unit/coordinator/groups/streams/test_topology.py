"""From a topology to tasks and internal topics (Kafka's `streams.topics`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.coordinator.groups.streams.topology import (
    configure,
    described,
    is_same_topology,
    required_topics,
    subtopologies_by_input,
)
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.streams_messages import (
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    CopartitionGroup,
    InternalTopic,
    KeyValue,
    Status,
    Subtopology,
    Topology,
    mentioned_topics,
)


def internal(name: str, partitions: int = 0, **fields: object) -> InternalTopic:
    return replace(InternalTopic(name, partitions), **fields)


def counts(existing: Mapping[str, int], *subtopologies: Subtopology) -> dict[str, int]:
    """The counts of the internal topics."""
    configured = configure(Topology(1, subtopologies), existing.get)
    assert configured.subtopologies is not None, configured.problem
    return {
        topic.name: topic.partitions
        for one in configured.subtopologies
        for topic in (*one.repartition_source_topics, *one.state_changelog_topics)
    }


def problem(existing: Mapping[str, int], *subtopologies: Subtopology) -> Status | None:
    return configure(Topology(1, subtopologies), existing.get).problem


def error(existing: Mapping[str, int], *subtopologies: Subtopology) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        configure(Topology(1, subtopologies), existing.get)
    return raised.value.code


WORD_COUNT = (
    Subtopology("0", ("words",), repartition_sink_topics=("by-word",)),
    Subtopology(
        "1",
        repartition_source_topics=(internal("by-word"),),
        state_changelog_topics=(internal("store", topic_configs=(KeyValue("cleanup.policy", "compact"),)),),
    ),
)


def test_a_topology_without_internal_topics_is_ready() -> None:
    configured = configure(Topology(3, (Subtopology("0", ("a", "b")),)), {"a": 2, "b": 5}.get)
    assert configured.is_ready
    assert configured.epoch == 3
    assert configured.task_counts() == {"0": 5}
    assert not configured.missing_topics


def test_missing_source_topics() -> None:
    one = Subtopology("0", ("e", "d", "c", "b", "a"))
    assert problem({"c": 1}, one) == Status(
        MISSING_SOURCE_TOPICS, "Source topics a, b, d and 1 additional topics are missing."
    )
    assert configure(Topology(1, (one,)), {}.get).subtopologies is None


def test_word_count_needs_a_repartition_topic_and_a_changelog() -> None:
    configured = configure(Topology(1, WORD_COUNT), {"words": 4}.get)
    assert configured.task_counts() == {"0": 4, "1": 4}
    assert configured.problem == Status(MISSING_INTERNAL_TOPICS, "Internal topics are missing: by-word, store")
    config = (KeyValue("cleanup.policy", "compact"),)
    assert configured.missing_topics == (internal("by-word", 4), internal("store", 4, topic_configs=config))
    assert configure(Topology(1, WORD_COUNT), {"words": 4, "by-word": 4, "store": 4}.get).is_ready
    stateful = [one.is_stateful for one in configured.subtopologies or ()]
    assert stateful == [False, True]


def test_an_internal_topic_with_another_count() -> None:
    existing = {"words": 4, "by-word": 4, "store": 3}
    assert problem(existing, *WORD_COUNT) == Status(
        INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic store has different number of partitions: expected 4, found 3",
    )


def test_an_existing_repartition_topic_determines_its_subtopology() -> None:
    """Kafka computes tasks and changelogs from the existing topics before it compares the counts."""
    found = problem({"words": 4, "by-word": 2}, *WORD_COUNT)
    assert found == Status(
        INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic by-word has different number of partitions: expected 4, found 2",
    )


def test_a_chain_of_repartition_topics() -> None:
    chain = (
        Subtopology("0", repartition_sink_topics=("r3",), repartition_source_topics=(internal("r2"),)),
        Subtopology("1", repartition_sink_topics=("r2",), repartition_source_topics=(internal("r1"),)),
        Subtopology("2", ("source",), repartition_sink_topics=("r1",)),
        Subtopology("3", repartition_source_topics=(internal("r3"),)),
    )
    assert counts({"source": 7}, *chain) == {"r1": 7, "r2": 7, "r3": 7}


def test_a_fixed_count_is_kept_and_propagated() -> None:
    chain = (
        Subtopology("0", ("source",), repartition_sink_topics=("r1",)),
        Subtopology("1", repartition_sink_topics=("r2",), repartition_source_topics=(internal("r1", 3),)),
        Subtopology("2", repartition_source_topics=(internal("r2"),), state_changelog_topics=(internal("log"),)),
    )
    assert counts({"source": 7}, *chain) == {"r1": 3, "r2": 3, "log": 3}


def test_a_loop_of_repartition_topics() -> None:
    loop = (
        Subtopology("0", repartition_sink_topics=("r1",), repartition_source_topics=(internal("r2"),)),
        Subtopology("1", repartition_sink_topics=("r2",), repartition_source_topics=(internal("r1"),)),
    )
    assert error({}, *loop) is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_repartition_topic_without_a_writer() -> None:
    alone = Subtopology("0", ("source",), repartition_source_topics=(internal("r"),))
    assert error({"source": 1}, alone) is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_subtopology_without_sources() -> None:
    alone = Subtopology("0", state_changelog_topics=(internal("log"),))
    assert error({}, alone) is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_an_index_outside_of_the_sources() -> None:
    wrong = Subtopology("0", ("source",), copartition_groups=(CopartitionGroup((1,)),))
    assert error({"source": 1}, wrong) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert error({}, wrong) is ErrorCode.UNKNOWN_SERVER_ERROR, "nothing is stored, though a source topic is missing"


def test_repeated_internal_topics() -> None:
    sinks = Subtopology("0", ("source",), repartition_sink_topics=("r",))
    log, config = internal("log"), KeyValue("a", "b")
    for wrong in (
        Subtopology("1", repartition_source_topics=(internal("r"), internal("r"))),
        Subtopology("1", ("source",), state_changelog_topics=(log, log)),
        Subtopology("1", ("source",), state_changelog_topics=(internal("log", topic_configs=(config, config)),)),
    ):
        assert error({"source": 1}, sinks, wrong) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_negative_count() -> None:
    one = Subtopology("0", ("source",), repartition_source_topics=(internal("r", -1),))
    assert error({"source": 1}, one) is ErrorCode.UNKNOWN_SERVER_ERROR


class TestCopartitioning:
    """The topics of a copartition group have equal counts (`CopartitionedTopicsEnforcer`)."""

    def join(self, *internal_topics: InternalTopic, sources: tuple[str, ...] = ()) -> tuple[Subtopology, ...]:
        """A subtopology that joins all its inputs, and one that writes the internal ones."""
        group = CopartitionGroup(tuple(range(len(sources))), (), tuple(range(len(internal_topics))))
        joined = Subtopology("1", sources, repartition_source_topics=internal_topics, copartition_groups=(group,))
        names = tuple(topic.name for topic in internal_topics)
        return (Subtopology("0", ("in",), repartition_sink_topics=names), joined)

    def test_external_topics_must_agree(self) -> None:
        found = problem({"in": 1, "a": 2, "b": 3}, *self.join(sources=("a", "b")))
        detail = "Following topics do not have the same number of partitions: [{a=2, b=3}]"
        assert found == Status(INCORRECTLY_PARTITIONED_TOPICS, detail)

    def test_external_topics_determine_flexible_ones(self) -> None:
        assert counts({"in": 1, "a": 6}, *self.join(internal("r"), sources=("a",))) == {"r": 6}

    def test_a_fixed_topic_must_agree_with_external_ones(self) -> None:
        found = problem({"in": 1, "a": 6}, *self.join(internal("r", 4), sources=("a",)))
        detail = (
            "Number of partitions [4] of repartition topic [r] doesn't match number of partitions [6] of the source "
            "topic."
        )
        assert found == Status(INCORRECTLY_PARTITIONED_TOPICS, detail)

    def test_a_fixed_topic_determines_flexible_ones(self) -> None:
        assert counts({"in": 9}, *self.join(internal("r", 4), internal("s"))) == {"r": 4, "s": 4}

    def test_fixed_topics_must_agree(self) -> None:
        found = problem({"in": 9}, *self.join(internal("r", 4), internal("s", 5)))
        detail = "Following topics do not have the same number of partitions: [{r=4, s=5}]"
        assert found == Status(INCORRECTLY_PARTITIONED_TOPICS, detail)

    def test_flexible_topics_get_the_largest_count(self) -> None:
        both = self.join(internal("r"), internal("s"))
        writers = (
            Subtopology("0", ("in",), repartition_sink_topics=("r",)),
            Subtopology("2", ("big",), repartition_sink_topics=("s",)),
        )
        assert counts({"in": 2, "big": 8}, both[1], *writers) == {"r": 8, "s": 8}

    def test_an_empty_group_needs_no_topic(self) -> None:
        one = Subtopology("0", ("in",), copartition_groups=(CopartitionGroup(),))
        assert problem({"in": 1}, one) is None


def test_the_topics_of_a_topology() -> None:
    topology = Topology(1, WORD_COUNT)
    assert mentioned_topics(topology) == ["words", "by-word", "store"]
    assert required_topics(topology) == {"words", "by-word", "store"}
    assert subtopologies_by_input(topology) == {"words": "0", "by-word": "1"}


def test_the_order_of_subtopologies_does_not_count() -> None:
    assert is_same_topology(Topology(1, WORD_COUNT), Topology(1, WORD_COUNT[::-1]))
    assert not is_same_topology(Topology(1, WORD_COUNT), Topology(2, WORD_COUNT))
    other = (WORD_COUNT[0], replace(WORD_COUNT[1], state_changelog_topics=()))
    assert not is_same_topology(Topology(1, WORD_COUNT), Topology(1, other))


def test_a_description_has_the_counts_once_the_topology_is_ready() -> None:
    topology = Topology(1, WORD_COUNT[::-1])

    def shown(existing: Mapping[str, int]) -> list[int]:
        subtopologies = described(configure(topology, existing.get), topology).subtopologies or ()
        assert [one.subtopology_id for one in subtopologies] == ["0", "1"]
        return [topic.partitions for one in subtopologies for topic in one.repartition_source_topics]

    assert shown({"words": 4}) == [0]
    assert shown({"words": 4, "by-word": 4, "store": 4}) == [4]


@st.composite
def chains(draw: st.DrawFn) -> tuple[dict[str, int], tuple[Subtopology, ...]]:
    """Subtopologies that may read what earlier ones write, so that there is no loop."""
    existing = {f"source-{number}": draw(st.integers(1, 12)) for number in range(draw(st.integers(1, 3)))}
    subtopologies: list[Subtopology] = []
    written: list[str] = []
    for number in range(draw(st.integers(1, 5))):
        reads = draw(st.lists(st.sampled_from(written), unique=True)) if written else []
        sources = draw(st.lists(st.sampled_from(sorted(existing)), min_size=0 if reads else 1, unique=True))
        repartition = tuple(internal(name) for name in reads)
        log = (internal(f"log-{number}"),) if draw(st.booleans()) else ()
        subtopologies.append(Subtopology(str(number), tuple(sources), (), log, (f"r-{number}",), repartition))
        written.append(f"r-{number}")
    return existing, tuple(draw(st.permutations(subtopologies)))


@given(chains())
def test_every_topology_without_loops_can_be_configured(case: tuple[dict[str, int], tuple[Subtopology, ...]]) -> None:
    """The number of tasks is that of the largest source's partitions; it is ready once the missing topics exist."""
    existing, subtopologies = case
    topology = Topology(1, subtopologies)
    first = configure(topology, existing.get)
    created = {topic.name: topic.partitions for topic in first.missing_topics}
    assert not created.keys() & existing.keys()
    every = existing | created
    assert every.keys() >= required_topics(topology)
    again = configure(topology, every.get)
    assert again.is_ready
    assert again.subtopologies == first.subtopologies
    for one in again.subtopologies or ():
        assert one.task_count == max(every[name] for name in one.input_topics)
        assert all(topic.partitions == one.task_count for topic in one.state_changelog_topics)


class TestManyTopics:
    """The work is linear in the size of the topology: look-ups are counted."""

    MANY = 1_000

    def lookups(self, *subtopologies: Subtopology) -> int:
        """How many partition counts of existing topics are looked up to configure a topology."""
        asked = 0

        def existing(name: str) -> int | None:
            nonlocal asked
            asked += 1
            return 3 if name.startswith("in") else None

        configured = configure(Topology(1, subtopologies), existing)
        assert configured.problem is None or configured.problem.status_code == MISSING_INTERNAL_TOPICS
        assert {topic.partitions for topic in configured.missing_topics} <= {3}
        return asked

    def test_a_chain_whose_last_topic_comes_first(self) -> None:
        chain = [Subtopology(str(at), (), (), (), (f"r{at + 1}",), (internal(f"r{at}"),)) for at in range(1, self.MANY)]
        first = Subtopology("0", ("in",), repartition_sink_topics=("r1",))
        last = Subtopology(str(self.MANY), repartition_source_topics=(internal(f"r{self.MANY}"),))
        assert self.lookups(last, *reversed(chain), first) < 10 * self.MANY

    def test_a_subtopology_that_reads_and_writes_many(self) -> None:
        sinks = tuple(f"r{at}" for at in range(self.MANY))
        reads = tuple(f"in{at}" for at in range(self.MANY))
        reader = Subtopology("1", repartition_source_topics=tuple(map(internal, sinks)))
        assert self.lookups(Subtopology("0", reads, repartition_sink_topics=sinks), reader) < 20 * self.MANY

    def test_many_copartition_groups_beside_many_fixed_counts(self) -> None:
        topics = tuple(internal(f"r{at}", 3) for at in range(self.MANY))
        groups = tuple(CopartitionGroup((), (), (at,)) for at in range(self.MANY))
        joined = Subtopology("1", repartition_source_topics=topics, copartition_groups=groups)
        assert self.lookups(joined) < 20 * self.MANY


def in_passes(existing: Mapping[str, int], subtopologies: tuple[Subtopology, ...]) -> dict[str, int] | None:
    """The counts of repartition topics as Kafka's `RepartitionTopics` describes them; None for a loop."""
    sources = [topic for one in subtopologies for topic in one.repartition_source_topics]
    known = {topic.name: topic.partitions for topic in sources if topic.partitions}
    while True:
        before = len(known)
        left = False
        for one in subtopologies:
            for sink in one.repartition_sink_topics:
                if sink in known:
                    continue
                own = [known[topic.name] for topic in one.repartition_source_topics if topic.name in known]
                found = own + [existing[name] for name in one.source_topics]
                if found:
                    known[sink] = max(found)
                left = left or not found
        if not left:
            return known
        if len(known) == before:
            return None


@st.composite
def tangles(draw: st.DrawFn) -> tuple[dict[str, int], tuple[Subtopology, ...]]:
    """Subtopologies that read and write any of a few topics, also in loops, and several writing the same one."""
    existing = {f"source-{number}": draw(st.integers(1, 9)) for number in range(3)}
    names = st.lists(st.sampled_from([f"r-{number}" for number in range(5)]), max_size=3, unique=True)
    fixed = {f"r-{number}": draw(st.sampled_from([0, 0, 0, 4])) for number in range(5)}
    subtopologies = []
    for number in range(draw(st.integers(1, 6))):
        sources = draw(st.lists(st.sampled_from(sorted(existing)), max_size=2, unique=True))
        reads = tuple(internal(name, fixed[name]) for name in draw(names))
        if sources or reads:
            subtopologies.append(Subtopology(str(number), tuple(sources), (), (), tuple(draw(names)), reads))
    return existing, tuple(subtopologies)


@given(tangles())
def test_repartition_topics_get_the_counts_of_kafkas_passes(
    case: tuple[dict[str, int], tuple[Subtopology, ...]],
) -> None:
    existing, subtopologies = case
    expected = in_passes(existing, subtopologies)
    read = {topic.name for one in subtopologies for topic in one.repartition_source_topics}
    if expected is None or not read <= expected.keys():
        assert error(existing, *subtopologies) is ErrorCode.STREAMS_INVALID_TOPOLOGY
    else:
        assert counts(existing, *subtopologies) == {name: expected[name] for name in read}
