"""klamm takes over the states of share groups that Apache Kafka 4.3.1 wrote, and hands them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop import apache_kafka
from tests.interop.share_states import CONFIG, NONE, Broker
from tests.support.foreign import require
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.timeout(300)

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
TOPIC = "moved"
DONE = (NONE, None)


async def ready(bootstrap: str) -> Broker:
    broker = Broker(bootstrap, TOPIC)
    await broker.ready()
    return broker


async def test_states_survive_both_takeovers(tmp_path: Path) -> None:
    require("java", "mvn")
    data = tmp_path / "data"
    states: list[Any] = []
    kafka = apache_kafka.KafkaNode(data, overrides=CONFIG)
    kafka.format(CLUSTER_ID)
    with kafka:
        broker = await ready(kafka.bootstrap)
        assert await broker.initialize(2, 7) == DONE
        assert (await broker.read(5))[0] is NONE
        for number in range(5):
            assert await broker.write(5, 2, (7 + number, 20 + number, 0, number + 1), count=number) == DONE
        assert await broker.initialize(1, group="deleted") == DONE
        assert await broker.delete(group="deleted") == DONE
        states.append((await broker.read(5), await broker.summary()))
        broker.close()
    node = NodeProcess(data, overrides=CONFIG)
    with node:
        broker = await ready(node.bootstrap)
        assert (await broker.read(5), await broker.summary()) == states.pop()
        assert (await broker.read(4))[0].name == "FENCED_LEADER_EPOCH"
        assert (await broker.summary(group="deleted"))[2:] == (0, 0, -1, -1)
        for number in range(6):
            assert await broker.write(5, 2, (12, 14 + number, 2, 6), start_offset=9, count=number) == DONE
        assert await broker.initialize(4, group="new") == DONE
        states.append((await broker.read(6), await broker.summary(), await broker.summary(group="new")))
        broker.close()
        assert node.stop() == 0, node.log()
    with kafka:
        broker = await ready(kafka.bootstrap)
        assert (await broker.read(6), await broker.summary(), await broker.summary(group="new")) == states.pop()
        assert (await broker.read(5))[0].name == "FENCED_LEADER_EPOCH"
        broker.close()
