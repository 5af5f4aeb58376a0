"""One node for all tests of this folder; each test uses its own topics and groups."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.node_process import NodeProcess

_numbers = itertools.count()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    overrides = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}
    with NodeProcess(tmp_path_factory.mktemp("node") / "data", overrides=overrides) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The node's address. `KLAMM_TEST_BOOTSTRAP` names another broker, so that the tests can also run against Kafka."""
    given = os.environ.get("KLAMM_TEST_BOOTSTRAP")
    if given:
        return given
    node: NodeProcess = request.getfixturevalue("node")
    return node.bootstrap


@pytest.fixture
def name(request: pytest.FixtureRequest, worker_id: str) -> Callable[[str], str]:
    """Creates names that no other test uses."""

    def make(kind: str) -> str:
        return f"{kind}-{worker_id}-{next(_numbers)}"

    return make


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    """librdkafka's admin client."""
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def topic(admin: AdminClient, name: Callable[[str], str]) -> str:
    """A topic of one partition."""
    made = name("topic")
    admin.create_topics([NewTopic(made, 1, 1)])[made].result()
    return made
