"""The pytest plugin that comes with the package: a klamm node for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from klamm.embedded.cluster import Cluster


@pytest.fixture
def klamm_cluster() -> Iterator[Cluster]:
    """A node of this test's own: in this process, on free ports, in a temporary folder that goes away with it.

    Clients connect to `klamm_cluster.bootstrap_servers`. Tests may run in parallel, with pytest-xdist in particular.
    """
    # Not at the top: a plugin is imported by every run of pytest, whether or not a test asks for a node.
    from klamm.embedded.cluster import Cluster

    with Cluster() as cluster:
        yield cluster
