"""What a coordinator loads from the log of its partition."""

import random
from itertools import product

from klamm._engine.records import encode_batch, record_batches
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.testing.simulator.brokers.faults import BrokerFaults
from klamm.testing.simulator.brokers.run import SETTINGS
from klamm.testing.simulator.brokers.world import BrokerWorld, ClusterPlan

COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": "150", "min.cleanable.dirty.ratio": "0"}
COMMIT_US = 1_000_000


def refused(code, message):
    return KafkaError(ErrorCode(code), message or "")


def loaded(load):
    """The offsets and keys of all records that a load returns."""
    found = []
    while (part := load.read()) is not None:
        while rows := part.take(100):
            found += [(offset, key) for offset, key, *_ in rows]
    return found


def test_a_load_passes_an_empty_batch_at_the_end_of_a_segment(tmp_path):
    """Pull request 17688 of Apache Kafka: a load that goes on after the last record reads the empty batch again."""
    plan = ClusterPlan(1, 1, 1, 1, False, SETTINGS, {"metadata.version": 30}, topic_configs=COMPACTED)
    world = BrokerWorld(random.Random(1), BrokerFaults(), tmp_path, plan)
    world.begin()
    (key,), broker = world.keys, world.brokers[1]
    engine = broker.engine
    world.run(world.now_us + COMMIT_US)
    # Of a producer's last batch the header stays. The second batch ends the first segment.
    for producer_id, keys in enumerate([[b"a"], [b"b", b"c"], [b"b"], [b"c"], [b"d"]]):
        now_ms = broker.now_ms
        rows = [(now_ms, each, b"v") for each in keys]
        batch = encode_batch(rows, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        assert engine.produce(key, batch, 1, 0, now_ms)[0] == ErrorCode.NONE
        world.run(world.now_us + COMMIT_US)
    assert engine.clean(broker.now_ms) == [key]
    batches = [(one.base_offset, len(list(one.records()))) for one in record_batches(engine.batches(key, 0))]
    assert batches == [(0, 1), (1, 0), (3, 1), (4, 1), (5, 1)]
    for read_bytes, part_bytes in product((1, 1 << 20), repeat=2):
        load = engine.load(key, read_bytes, part_bytes, True, refused)
        assert loaded(load) == [(0, b"a"), (3, b"b"), (4, b"c"), (5, b"d")], (read_bytes, part_bytes)
    engine.kill()
