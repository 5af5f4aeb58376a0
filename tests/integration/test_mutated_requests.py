"""Requests of transactions and groups with any bytes changed, at a node's front door.

Each is answered, or its connection is closed, and none fails in a handler. The node serves on, and its memory does
not grow.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.node.requests.handlers import BROKER_FAMILIES
from klamm.protocol.api_key import ApiKey
from klamm.protocol.apis import APIS
from klamm.protocol.wire.codec import encode
from klamm.protocol.wire.kio_classes import request_class
from tests.support.hostile_requests import REQUESTS, SETTINGS, SHARE_FETCHES, prepared
from tests.support.hostile_values import CLOSED, SILENT, TOPIC, Broker, Known, encoded
from tests.support.messages import request_with_items
from tests.support.mutations import damaged
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

CASES: Final = int(os.environ.get("KLAMM_MUTATIONS", "4000"))
SEED: Final = int(os.environ.get("KLAMM_MUTATIONS_SEED", str(random.SystemRandom().randrange(1 << 30))))
ANSWER_S_MAX: Final = 0.5
"""Some requests are rightly answered late or never: a connection is then given up."""
NAMES: Final = 24
CONNECTIONS: Final = 3
RSS_GROWTH_MAX_BYTES: Final = 128 << 20
BY_THE_ENGINE: Final = {ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}
OF_STATES: Final = (range(8, 17), range(22, 29), (42, 47, 61, 65, 66), range(68, 93))
"""Keys of what coordinators and the leaders of share partitions serve."""
KEYS: Final = [
    key
    for key in sorted(APIS)
    if any(key in some for some in OF_STATES) and key in BROKER_FAMILIES.keys() | BY_THE_ENGINE
]


def test_each_of_the_apis_has_a_request() -> None:
    assert {request.key for request in (*REQUESTS.values(), *SHARE_FETCHES)} <= set(KEYS)
    assert {*range(22, 29), 61, 65, 66, 68, 69, *range(76, 82), *range(83, 93)} <= set(KEYS)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("mutated") / "data", overrides=SETTINGS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(60)
        yield running


def rss_bytes(node: NodeProcess) -> int:
    return int(Path(f"/proc/{node.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Mutator:
    """Sends good requests, so that there are states, and changed ones of all versions."""

    def __init__(self, node: NodeProcess) -> None:
        self._rng = random.Random(SEED)
        topic_id = prepared(Broker(node.port))
        self._known = [Known(f"n{at}", topic_id) for at in range(NAMES)]
        self._brokers = [Broker(node.port, ANSWER_S_MAX) for _ in range(CONNECTIONS)]
        self.outcomes = Counter[str]()

    def step(self) -> None:
        """Send a request. What a handler did not expect is in the node's log."""
        known, broker = self._rng.choice(self._known), self._rng.choice(self._brokers)
        if self._rng.random() < 0.5:
            request = self._rng.choice((*REQUESTS.values(), *SHARE_FETCHES))
            if self._rng.random() < 0.3:
                for before in request.before:
                    self._send(broker, known, before.key, before.version, encoded(before, known.fill(before.fields)))
            key, version, body = request.key, request.version, encoded(request, known.fill(request.fields))
        else:
            key = self._rng.choice(KEYS)
            version = self._rng.randint(*APIS[key].versions)
            body = encode(request_with_items(request_class(key, version)))
        for _ in range(self._rng.choice((0, 1, 1, 1, 2, 3))):
            body = damaged(self._rng, body)
        self._send(broker, known, key, version, body)

    def _send(self, broker: Broker, known: Known, key: int, version: int, body: bytes) -> None:
        answer = broker.ask(key, version, body)
        self.outcomes[answer if isinstance(answer, str) else "answered"] += 1
        if not isinstance(answer, str):
            known.learn(answer)


@pytest.mark.timeout(3600)
def test_no_bytes_disturb_a_node(node: NodeProcess) -> None:
    values = f"KLAMM_MUTATIONS_SEED={SEED} KLAMM_MUTATIONS={CASES}"
    print(f"replay with {values} python -m pytest tests/integration/test_mutated_requests.py")
    mutator = Mutator(node)
    before = rss_bytes(node)
    for _ in range(CASES):
        mutator.step()
    assert node.is_running
    wait_until(node.answers_metadata)
    # An exception that no handler expects is logged with its stack.
    faults = [
        line
        for line in node.output.read_text(errors="replace").splitlines()
        if "Traceback" in line or "panicked" in line
    ]
    assert not faults, faults[:3]
    assert rss_bytes(node) <= before + RSS_GROWTH_MAX_BYTES
    assert mutator.outcomes["answered"] > CASES / 4, mutator.outcomes
    assert mutator.outcomes[CLOSED] > CASES / 50, mutator.outcomes
    assert mutator.outcomes[SILENT] < CASES / 20, mutator.outcomes
