"""The share coordinator's APIs request by request (KIP-932): Apache Kafka 4.3.1 and klamm give the same responses."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from confluent_kafka.admin import ConfigResource, ConfigSource

from klamm import Cluster
from klamm.coordinator.share.records import SNAPSHOT, UPDATE, Snapshot, Update, share_key, snapshot_value, update_value
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.share_state import SharePartitionKey, StateBatch
from tests.interop import apache_kafka
from tests.interop.share_states import CONFIG, NONE, STATE_TOPIC, UNKNOWN, Broker
from tests.support.foreign import require

pytestmark = pytest.mark.timeout(300)

INVALID = ErrorCode.INVALID_REQUEST
OLD_LEADER = ErrorCode.FENCED_LEADER_EPOCH
OLD_STATE = ErrorCode.FENCED_STATE_EPOCH
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
NOT_HERE = uuid.UUID(int=77)


@pytest.fixture(scope="module", params=["Apache Kafka", "klamm"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "klamm":
        with Cluster(config=CONFIG) as cluster:
            yield cluster.bootstrap_servers
        return
    require("java", "mvn")
    with apache_kafka.running(tmp_path_factory.mktemp("kafka") / "data", CLUSTER_ID, CONFIG) as node:
        yield node.bootstrap


@pytest.fixture
async def broker(bootstrap: str) -> AsyncIterator[Broker]:
    made = Broker(bootstrap, f"t{uuid.uuid4().hex[:12]}")
    await made.ready()
    yield made
    made.close()


OF_UNKNOWN = "This server does not host this topic-partition."
OF_OLD_LEADER = "The leader epoch in the request is older than the epoch on the broker."
OF_OLD_STATE = "The share coordinator rejected the request because the share-group state epoch did not match."
OF_NEGATIVE = "The partition id cannot be a negative number."
DONE = (NONE, None)
SOME_ID = "A" * 22


class TestWithoutState:
    async def test_a_summary_and_a_delete_of_nothing(self, broker: Broker) -> None:
        assert await broker.summary() == (NONE, None, 0, 0, -1, -1)
        assert await broker.summary(version=0) == (NONE, None, 0, 0, -1)
        assert await broker.delete() == DONE

    async def test_a_read_and_a_write_of_nothing(self, broker: Broker) -> None:
        message = "Read operation on uninitialized share partition not allowed."
        assert await broker.read(0) == (INVALID, message, 0, 0, [])
        message = "Write operation on uninitialized share partition not allowed."
        assert await broker.write(0, 0) == (INVALID, message)

    async def test_an_unknown_topic(self, broker: Broker) -> None:
        for place in ({"topic_id": NOT_HERE}, {"partition": 5}):
            assert await broker.initialize(0, **place) == (UNKNOWN, OF_UNKNOWN)
            assert await broker.delete(**place) == (UNKNOWN, OF_UNKNOWN)
            assert await broker.summary(**place) == (UNKNOWN, OF_UNKNOWN, 0, 0, 0, -1)
            assert (await broker.read(0, **place))[0] is INVALID, "it was never initialized"

    async def test_a_negative_partition(self, broker: Broker) -> None:
        assert await broker.initialize(0, partition=-1) == (INVALID, OF_NEGATIVE)
        assert await broker.read(0, partition=-1) == (INVALID, OF_NEGATIVE, 0, 0, [])
        assert await broker.write(0, 0, partition=-1) == (INVALID, OF_NEGATIVE)
        assert await broker.delete(partition=-1) == (INVALID, OF_NEGATIVE)
        assert await broker.summary(partition=-1) == (INVALID, OF_NEGATIVE, 0, 0, 0, -1)

    @pytest.mark.parametrize("api_key", range(83, 88))
    async def test_a_request_that_names_nothing(self, broker: Broker, api_key: int) -> None:
        topics = [{"topic_id": broker.topic_id, "partitions": [{"partition": 0}]}]
        without = [{"topic_id": broker.topic_id, "partitions": []}]
        for fields in ({"group_id": "", "topics": topics}, {"topics": []}, {"topics": without}):
            found = await broker.ask(api_key, 0, **({"group_id": "g"} | fields))
            assert found.results == ()


class TestEpochs:
    async def test_only_initializing_sets_the_state_epoch(self, broker: Broker) -> None:
        assert await broker.initialize(2) == DONE
        assert await broker.summary() == (NONE, None, 2, 0, -1, -1)
        assert await broker.initialize(1) == (OLD_STATE, OF_OLD_STATE)
        assert await broker.initialize(-1) == DONE, "not checked"
        assert await broker.summary() == (NONE, None, -1, 0, -1, -1)
        assert await broker.initialize(1) == (OLD_STATE, OF_OLD_STATE), "the highest one counts"
        assert await broker.initialize(2, 7) == DONE
        assert await broker.summary() == (NONE, None, 2, 0, 7, 0)
        assert await broker.write(0, 9, count=1) == DONE
        assert await broker.summary() == (NONE, None, 2, 0, 7, 1)
        assert await broker.write(0, 1) == (OLD_STATE, OF_OLD_STATE)
        assert await broker.write(0, -1) == DONE

    async def test_only_reading_sets_the_leader_epoch(self, broker: Broker) -> None:
        await broker.initialize(2, 7)
        assert await broker.read(5) == (NONE, None, 2, 7, [])
        assert await broker.summary() == (NONE, None, 2, 5, 7, 0)
        assert await broker.read(4) == (OLD_LEADER, OF_OLD_LEADER, 0, 0, [])
        assert await broker.read(-1) == (NONE, None, 2, 7, []), "not checked"
        assert await broker.write(4, 2) == (OLD_LEADER, OF_OLD_LEADER)
        assert await broker.write(9, 2, count=3) == DONE
        assert await broker.summary() == (NONE, None, 2, 5, 7, 3)
        assert await broker.write(4, 1) == (OLD_LEADER, OF_OLD_LEADER), "checked before the state epoch"
        assert await broker.write(-1, 2) == DONE

    async def test_the_highest_leader_epoch_outlives_another_initialize(self, broker: Broker) -> None:
        await broker.initialize(2)
        await broker.read(5)
        assert await broker.initialize(3, 4) == DONE
        assert await broker.summary() == (NONE, None, 3, 0, 4, 0)
        assert (await broker.read(4))[0] is OLD_LEADER
        assert await broker.read(5) == (NONE, None, 3, 4, [])
        assert await broker.summary() == (NONE, None, 3, 0, 4, 0), "the epoch is known: nothing is written"
        await broker.read(6)
        assert await broker.summary() == (NONE, None, 3, 6, 4, 0)

    async def test_a_deleted_state_can_be_initialized_again(self, broker: Broker) -> None:
        await broker.initialize(2)
        await broker.read(5)
        assert await broker.delete() == DONE
        assert await broker.summary() == (NONE, None, 0, 0, -1, -1)
        assert (await broker.read(6))[0] is INVALID
        assert await broker.initialize(0, 4) == DONE
        assert (await broker.read(0))[0] is NONE


class TestBatches:
    async def test_overlapping_batches(self, broker: Broker) -> None:
        await broker.initialize(2, 0)
        await broker.write(0, 2, (0, 9, 0, 1))
        await broker.write(0, 2, (5, 14, 0, 2))
        assert (await broker.read(0))[3:] == (0, [(0, 4, 0, 1), (5, 14, 0, 2)])

    async def test_updates_and_snapshots_mean_the_same(self, broker: Broker) -> None:
        """A snapshot follows three updates."""
        await broker.initialize(2, 7)
        await broker.write(9, 2, (7, 16, 0, 1), count=3)
        await broker.write(-1, -1, (12, 20, 2, 2), start_offset=9, count=4)
        assert (await broker.read(0))[3:] == (9, [(9, 11, 0, 1), (12, 20, 2, 2)])
        await broker.write(5, 9, (5, 10, 4, 1), (11, 14, 2, 1), (15, 15, 0, 3), count=5)
        expected = [(9, 10, 4, 1), (11, 11, 2, 1), (12, 14, 2, 2), (15, 15, 0, 3), (16, 20, 2, 2)]
        assert (await broker.read(0))[3:] == (9, expected)
        for number in range(5):
            await broker.write(5, 2, (20 + number, 25 + number, 2 * (number % 2), number + 1), start_offset=10 + number)
        expected = [(14, 14, 2, 2), (15, 15, 0, 3), (16, 21, 2, 2), (22, 22, 0, 3), (23, 23, 2, 4), (24, 29, 0, 5)]
        assert (await broker.read(0))[3:] == (14, expected)

    async def test_a_version_without_the_count_forgets_it(self, broker: Broker) -> None:
        await broker.initialize(2, 7)
        await broker.write(0, 2, count=3)
        await broker.write(0, 2, version=0)
        assert (await broker.summary())[-1] == -1


async def test_the_records(broker: Broker) -> None:
    """Byte for byte, except for the times."""
    await broker.initialize(2, 7)
    await broker.read(5)
    for number in range(4):
        await broker.write(5, 2, (7, 9 + number, 2, 1), (20, 300, 0, 300), start_offset=7, count=number)
    await broker.delete()
    key = SharePartitionKey(broker.name, broker.topic_id.bytes, 0)
    records = await asyncio.to_thread(broker.records, key, 7)
    expected: list[Snapshot | Update | None] = [
        Snapshot(0, 2, 0, 7, 0, (), 0, 0),
        Update(0, 5, 7, 0, ()),
        *(Update(0, 5, 7, n, (StateBatch(7, 9 + n, 2, 1), StateBatch(20, 300, 0, 300))) for n in range(2)),
        Snapshot(1, 2, 5, 7, 2, (StateBatch(7, 11, 2, 1), StateBatch(20, 300, 0, 300)), 0, 0),
        Update(1, 5, 7, 3, (StateBatch(7, 12, 2, 1), StateBatch(20, 300, 0, 300))),
        None,
    ]
    assert records == [written(key, one) for one in expected]


def written(key: SharePartitionKey, value: Snapshot | Update | None) -> tuple[bytes, bytes | None]:
    if isinstance(value, Update):
        return share_key(UPDATE, key), update_value(value)
    return share_key(SNAPSHOT, key), None if value is None else snapshot_value(value)


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (f"g:{SOME_ID}:0", NONE),
        (f"a:b:{SOME_ID}:0", NONE),
        (f"g:{SOME_ID}:-1", NONE),
        (f"g:{SOME_ID}:+1", NONE),
        (f"g:{SOME_ID}:0:", NONE),
        ("", INVALID),
        ("a:b", INVALID),
        ("a:b:c", INVALID),
        (f":{SOME_ID}:0", INVALID),
        (f" :{SOME_ID}:0", INVALID),
        (f"g:{SOME_ID}:x", INVALID),
        (f"g:{SOME_ID}:99999999999", INVALID),
        (f"g:{SOME_ID[1:]}:0", INVALID),
        (f"g:{SOME_ID}AA:0", INVALID),
    ],
)
async def test_keys_of_find_coordinator(broker: Broker, key: str, code: ErrorCode) -> None:
    assert await broker.find(key) is code
    assert await broker.find(key, version=5) is INVALID


async def test_the_topic_and_its_configs(broker: Broker) -> None:
    topic = broker.admin.list_topics(STATE_TOPIC, timeout=30).topics[STATE_TOPIC]
    assert sorted(topic.partitions) == [0, 1]
    resource = ConfigResource(ConfigResource.Type.TOPIC, STATE_TOPIC)
    found = broker.admin.describe_configs([resource])[resource].result()
    own = {
        name: entry.value for name, entry in found.items() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }
    assert own == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }
