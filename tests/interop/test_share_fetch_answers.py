"""ShareFetch and ShareAcknowledge request by request (KIP-932): Apache Kafka 4.3.1 and klamm give the same responses.

These APIs do not check membership, so a group here is only a state at the share coordinator, and sessions.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from klamm import Cluster
from klamm.protocol.errors import ErrorCode
from tests.interop import apache_kafka
from tests.interop.share_members import Acks, Answer, Member
from tests.interop.share_states import CONFIG, Broker
from tests.support.foreign import require
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

NONE = ErrorCode.NONE
INVALID_REQUEST = ErrorCode.INVALID_REQUEST
INVALID_STATE = ErrorCode.INVALID_RECORD_STATE
UNKNOWN_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
UNKNOWN_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
SETTINGS = CONFIG | {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.partition.max.record.locks": "100",
}
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


@pytest.fixture(scope="module", params=["Apache Kafka", "klamm"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "klamm":
        with Cluster(config=SETTINGS) as cluster:
            yield cluster.bootstrap_servers
        return
    require("java", "mvn")
    with apache_kafka.running(tmp_path_factory.mktemp("kafka") / "data", CLUSTER_ID, SETTINGS) as node:
        yield node.bootstrap


class Group:
    """A group that reads a topic of the same name from the beginning."""

    def __init__(self, bootstrap: str, broker: Broker) -> None:
        self.bootstrap, self.broker, self.name = bootstrap, broker, broker.name
        self.topic_id = broker.topic_id.bytes
        self._members: list[Member] = []

    def member(self, name: str | None = "m", *, group: str | None = "") -> Member:
        made = Member(self.bootstrap, self.name if group == "" else group, self.topic_id, name)
        self._members.append(made)
        return made

    def close(self) -> None:
        for member in self._members:
            member.close()

    def produce(self, *sizes: int, transactional_id: str | None = None, aborts: bool = False) -> None:
        """Produce one log batch for each of these numbers of records."""
        settings: dict[str, str | int] = {"bootstrap.servers": self.bootstrap, "linger.ms": 5000}
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        producer = Producer(settings)
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        for size in sizes:
            for number in range(size):
                producer.produce(self.name, str(number))
            producer.flush()
        if transactional_id is not None:
            (producer.abort_transaction if aborts else producer.commit_transaction)()

    def configure(self, **values: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self.name, incremental_configs=entries)
        for done in self.broker.admin.incremental_alter_configs([resource]).values():
            done.result()

    def delete_records(self, before: int) -> None:
        from confluent_kafka import TopicPartition

        for done in self.broker.admin.delete_records([TopicPartition(self.name, 0, before)]).values():
            done.result()


@pytest.fixture
async def group(bootstrap: str) -> AsyncIterator[Group]:
    broker = Broker(bootstrap, f"t{uuid.uuid4().hex[:12]}")
    await broker.enable()
    await broker.ready()
    code, _ = await broker.initialize(1, 0)
    assert code is NONE
    made = Group(bootstrap, broker)
    yield made
    made.close()
    broker.close()


def opened(group: Group, name: str = "m", **fields: object) -> tuple[Member, Answer]:
    """A member and the response to its first fetch."""
    member = group.member(name)
    return member, member.fetch({0: ()}, **fields)


def errors(answer: Answer) -> tuple[ErrorCode, list[ErrorCode]]:
    return answer.error, [part.error for part in answer.parts]


class TestSessions:
    async def test_epochs(self, group: Group) -> None:
        group.produce(10)
        member = group.member()
        assert errors(member.fetch(epoch=1)) == (ErrorCode.SHARE_SESSION_NOT_FOUND, [])
        assert errors(member.acknowledge({}, epoch=1)) == (ErrorCode.SHARE_SESSION_NOT_FOUND, [])
        assert member.fetch({0: ()}).acquired() == [(0, 9, 1)]
        assert errors(member.fetch(epoch=2)) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, [])
        assert errors(member.acknowledge({}, epoch=2)) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, [])
        assert errors(member.acknowledge({}, epoch=0)) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, [])
        assert errors(member.acknowledge({0: [(0, 9, [ACCEPT])]})) == (NONE, [NONE])
        assert errors(member.fetch(max_wait_ms=0)) == (NONE, [])
        assert errors(member.fetch(epoch=-1)) == (NONE, [])
        assert errors(member.fetch(epoch=-1)) == (ErrorCode.SHARE_SESSION_NOT_FOUND, [])

    async def test_member_and_group_ids(self, group: Group) -> None:
        for member, name in (("x" * 37, ""), ("", ""), (None, ""), ("m", None)):
            asked = group.member(member, group=name)
            assert errors(asked.fetch({0: ()})) == (INVALID_REQUEST, [])
            assert errors(asked.acknowledge({0: ()}, epoch=1)) == (INVALID_REQUEST, [])
        assert errors(group.member().fetch({0: [(0, 9, [ACCEPT])]})) == (INVALID_REQUEST, [])

    async def test_unknown_topics_and_partitions(self, group: Group) -> None:
        unknown = uuid.UUID(int=77).bytes
        member = group.member()
        assert errors(member.fetch({5: ()}, max_wait_ms=0)) == (NONE, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        acknowledged = member.acknowledge({0: [(0, 0, [ACCEPT])]}, topic_id=unknown)
        assert errors(acknowledged) == (NONE, [ErrorCode.UNKNOWN_TOPIC_ID])
        assert errors(member.acknowledge({5: [(0, 0, [ACCEPT])]})) == (NONE, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        # It is not in the session.
        assert errors(member.acknowledge({0: [(0, 0, [ACCEPT])]})) == (NONE, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])

    async def test_an_empty_group_id(self, group: Group) -> None:
        group.produce(10)
        with Member(group.bootstrap, "", group.topic_id) as member:
            assert errors(member.fetch({0: ()})) == (NONE, [UNKNOWN_ERROR])
            error, of_partitions = errors(member.fetch({5: ()}))
            assert (error, set(of_partitions)) == (NONE, {UNKNOWN_ERROR, UNKNOWN_PARTITION})
            assert errors(member.acknowledge({0: [(0, 9, [ACCEPT])]})) == (NONE, [UNKNOWN_PARTITION])
            assert errors(member.fetch(epoch=-1)) == (NONE, [])

    async def test_the_end_of_a_session_releases_records(self, group: Group) -> None:
        group.produce(10)
        member, answer = opened(group)
        assert (answer.acquired(), answer.lock_ms, answer.part().offsets()) == ([(0, 9, 1)], 30_000, [0])
        closed = member.fetch({0: [(0, 4, [ACCEPT])]}, epoch=-1)
        assert (closed.error, closed.part().acknowledge_error, closed.acquired()) == (NONE, NONE, [])
        _, answer = opened(group, "other")
        assert answer.acquired() == [(5, 9, 2)]

    async def test_the_end_of_a_connection_releases_records(self, group: Group) -> None:
        group.produce(10)
        member, answer = opened(group)
        assert answer.acquired() == [(0, 9, 1)]
        other = group.member("other")
        other.send_fetch({0: ()})
        member.close()
        assert other.receive_fetch().acquired() == [(0, 9, 2)]

    async def test_a_session_that_is_opened_again_keeps_its_locks(self, group: Group) -> None:
        group.produce(10)
        first, _ = opened(group)
        second, answer = opened(group, max_wait_ms=0)
        assert answer.acquired() == []
        first.close()
        assert errors(second.acknowledge({0: [(0, 9, [ACCEPT])]})) == (NONE, [NONE])


class TestAcquiring:
    @pytest.mark.parametrize(("mode", "expected"), [(0, [[(0, 9, 1)], []]), (1, [[(0, 4, 1)], [(5, 9, 1)]])])
    async def test_the_acquire_mode(self, group: Group, mode: int, expected: list[list[tuple[int, ...]]]) -> None:
        group.produce(10)
        member, first = opened(group, mode=mode, max_records=5)
        second = member.fetch(mode=mode, max_records=5, max_wait_ms=0)
        assert [first.acquired(), second.acquired()] == expected

    @pytest.mark.parametrize("mode", [2, -1])
    async def test_an_acquire_mode_that_does_not_exist(self, group: Group, mode: int) -> None:
        """The session and the acknowledgements are not concerned, nor is a request that fetches nothing."""
        group.produce(10)
        member = group.member()
        assert errors(member.fetch({5: ()}, mode=mode, max_wait_ms=0)) == (NONE, [UNKNOWN_PARTITION])
        assert errors(member.fetch({0: ()}, mode=mode)) == (UNKNOWN_ERROR, [])
        assert errors(member.fetch(mode=mode, max_records=0)) == (UNKNOWN_ERROR, [])
        assert member.fetch().acquired() == [(0, 9, 1)]
        assert errors(member.fetch({0: [(5, 9, [ACCEPT])]}, mode=mode)) == (UNKNOWN_ERROR, [])
        assert errors(member.acknowledge({0: [(5, 9, [ACCEPT])]})) == (NONE, [INVALID_STATE])
        zeros = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        renewed = member.fetch({0: [(0, 4, [RENEW])]}, mode=mode, is_renew=True, **zeros)
        assert (errors(renewed), renewed.part().acknowledge_error) == ((NONE, [NONE]), NONE)
        assert errors(member.fetch(epoch=-1, mode=mode)) == (NONE, [])

    async def test_a_fetch_of_no_records(self, group: Group) -> None:
        group.produce(10)
        member = group.member()
        assert errors(member.fetch({0: (), 5: ()}, max_records=0)) == (NONE, [UNKNOWN_PARTITION])
        assert errors(member.fetch(max_bytes=0)) == (NONE, [UNKNOWN_PARTITION])
        assert member.fetch().acquired() == [(0, 9, 1)]

    async def test_ranges_are_cut_at_log_batches(self, group: Group) -> None:
        group.produce(4, 6, 10, 5)
        _, answer = opened(group, batch_size=8)
        assert answer.acquired() == [(0, 9, 1), (10, 19, 1), (20, 24, 1)]

    async def test_released_records_come_first(self, group: Group) -> None:
        group.produce(10)
        member, _ = opened(group)
        group.produce(5)
        assert errors(member.acknowledge({0: [(3, 3, [RELEASE])]})) == (NONE, [NONE])
        found = member.fetch().acquired()
        while found[-1].last < 14:
            found += member.fetch().acquired()
        assert found == [(3, 3, 2), (10, 14, 1)]

    async def test_a_delivery_limit(self, group: Group) -> None:
        """Released records reach it."""
        group.produce(1)
        member, answer = opened(group)
        for count in range(1, 6):
            assert answer.acquired() == [(0, 0, count)]
            member.acknowledge({0: [(0, 0, [RELEASE])]})
            answer = member.fetch(max_wait_ms=100 if count == 5 else 30_000)
        assert answer.acquired() == []
        group.produce(1)
        assert member.fetch().acquired() == [(1, 1, 1)]

    async def test_records_near_the_limit_come_in_parts(self, group: Group) -> None:
        group.produce(100)
        member, answer = opened(group)
        for _ in range(2):
            member.acknowledge({0: [(0, 99, [RELEASE])]})
            answer = member.fetch()
        assert answer.acquired() == [(0, 99, 3)]
        member.acknowledge({0: [(0, 99, [RELEASE])]})
        assert member.fetch().acquired() == [(0, 49, 4)]
        member.acknowledge({0: [(0, 49, [RELEASE])]})
        assert member.fetch().acquired() == [(0, 0, 5)]

    async def test_the_limit_of_records_in_flight(self, group: Group) -> None:
        group.configure(share_partition_max_record_locks="100")
        group.produce(60, 60, 60)
        member, answer = opened(group)
        assert answer.acquired() == [(0, 119, 1)]
        assert member.fetch(max_wait_ms=50).acquired() == []
        member.acknowledge({0: [(10, 19, [RELEASE])]})
        assert member.fetch().acquired() == [(10, 19, 2)]

    async def test_aborted_records(self, group: Group) -> None:
        group.configure(share_isolation_level="read_committed")
        group.produce(5)
        group.produce(5, transactional_id=group.name, aborts=True)
        group.produce(5)
        member, answer = opened(group)
        found = answer.acquired()
        while found[-1].last < 15:
            found += member.fetch().acquired()
        offsets = {offset for one in found for offset in range(one.first, one.last + 1)}
        assert offsets == {*range(5), *range(10, 16)}

    async def test_a_log_that_begins_later(self, group: Group) -> None:
        group.produce(10, 10)
        member, answer = opened(group)
        assert answer.acquired() == [(0, 19, 1)]
        group.delete_records(15)
        assert errors(member.acknowledge({0: [(0, 19, [ACCEPT])]})) == (NONE, [NONE])
        group.produce(3)
        found: list[tuple[int, ...]] = []
        while not found:
            found = [*member.fetch().acquired()]
        assert found == [(20, 22, 1)]


class TestAcknowledging:
    @pytest.mark.parametrize(
        ("acks", "version", "is_renew", "expected"),
        [
            ([(0, 9, [1, 2])], 2, False, INVALID_REQUEST),
            ([(0, 9, [])], 2, False, INVALID_REQUEST),
            ([(5, 4, [1])], 2, False, INVALID_REQUEST),
            ([(5, 9, [1]), (0, 4, [1])], 2, False, INVALID_REQUEST),
            ([(0, 9, [5])], 2, False, INVALID_REQUEST),
            ([(0, 9, [4])], 2, False, INVALID_REQUEST),
            ([(0, 9, [4])], 1, False, INVALID_REQUEST),
            ([(0, 10, [1])], 2, False, INVALID_REQUEST),
            ([(12, 13, [1])], 2, False, INVALID_REQUEST),
            ([(0, 4, [1]), (5, 12, [1])], 2, False, INVALID_REQUEST),
            ([(0, 4, [1]), (4, 9, [1])], 2, False, INVALID_STATE),
            ([(0, 9, [4])], 2, True, NONE),
            ([(0, 9, [0])], 1, False, NONE),
            ([(0, 4, [1, 2, 3, 0, 1]), (5, 9, [3])], 2, False, NONE),
        ],
    )
    async def test_types_and_offsets(
        self, group: Group, acks: Acks, version: int, is_renew: bool, expected: ErrorCode
    ) -> None:
        """Acknowledgements of a partition are accepted or refused as a whole."""
        group.produce(10)
        member, _ = opened(group)
        answer = member.acknowledge({0: acks}, version=version, is_renew=is_renew)
        assert errors(answer) == (NONE, [expected])
        if expected is not NONE or is_renew:
            assert errors(member.acknowledge({0: [(0, 9, [ACCEPT])]})) == (NONE, [NONE])

    async def test_twice_and_by_another(self, group: Group) -> None:
        group.produce(10)
        member, _ = opened(group)
        other, answer = opened(group, "other", max_wait_ms=0)
        assert answer.acquired() == []
        assert errors(other.acknowledge({0: [(0, 9, [ACCEPT])]})) == (NONE, [INVALID_STATE])
        assert errors(member.acknowledge({0: [(5, 9, [ACCEPT])]})) == (NONE, [NONE])
        assert errors(member.acknowledge({0: [(5, 9, [ACCEPT])]})) == (NONE, [INVALID_STATE])
        assert errors(member.acknowledge({0: [(0, 4, [ACCEPT])]})) == (NONE, [NONE])
        assert errors(member.acknowledge({0: [(0, 4, [ACCEPT])]})) == (NONE, [NONE]), "below the start offset"

    async def test_partitions_without_acknowledgements(self, group: Group) -> None:
        group.produce(10)
        member, _ = opened(group)
        assert errors(member.acknowledge({0: ()})) == (NONE, [])
        assert errors(member.acknowledge({0: (), 9: [(0, 0, [1])]})) == (NONE, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])

    async def test_renewals_by_fetch(self, group: Group) -> None:
        group.produce(10)
        member, _ = opened(group)
        renewal: dict[int, Acks] = {0: [(0, 9, [RENEW])]}
        zeros = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        for name in zeros:
            refused = member.fetch(renewal, epoch=1, is_renew=True, **(zeros | {name: 1}))
            assert errors(refused) == (INVALID_REQUEST, [])
        answer = member.fetch(renewal, is_renew=True, **zeros)
        assert (errors(answer), answer.part().acknowledge_error, answer.acquired()) == ((NONE, [NONE]), NONE, [])
        group.configure(share_renew_acknowledge_enable="false")
        wait_until(lambda: member.acknowledge(renewal, is_renew=True).part().error is INVALID_STATE)

    async def test_the_state_that_is_written(self, group: Group) -> None:
        group.produce(10)
        member, _ = opened(group)
        assert errors(member.acknowledge({0: [(0, 4, [ACCEPT]), (7, 7, [REJECT])]})) == (NONE, [NONE])
        member.close()

        def released() -> bool:
            _, answer = opened(group, "other", max_wait_ms=1000)
            return answer.acquired() == [(5, 6, 2), (8, 9, 2)]

        wait_until(released)
        code, _, _, start, batches = await group.broker.read(-1)
        assert (code, start) == (NONE, 5)
        assert batches == [(5, 6, 0, 1), (7, 7, 4, 1), (8, 9, 0, 1)]


async def test_a_lock_ends(group: Group) -> None:
    group.configure(share_record_lock_duration_ms="1000")
    group.produce(10)
    member, answer = opened(group)
    assert (answer.acquired(), answer.lock_ms) == ([(0, 9, 1)], 1000)
    other = group.member("other")
    assert other.fetch({0: ()}).acquired() == [(0, 9, 2)]
    assert errors(member.acknowledge({0: [(0, 9, [ACCEPT])]})) == (NONE, [INVALID_STATE])
