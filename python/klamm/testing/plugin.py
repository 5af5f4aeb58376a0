"""The pytest plugin of the package: a klamm node for each test that uses the fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from klamm.embedded.cluster import Cluster


@pytest.fixture
def klamm_cluster() -> Iterator[Cluster]:
    """A node for this test: in this process, on free ports, in a temporary folder that is deleted afterwards.

    Clients connect to `klamm_cluster.bootstrap_servers`. Tests may run in parallel, with pytest-xdist in particular.
    """
    # Not at the top: every run of pytest imports the plugin, whether or not a test uses a node.
    from klamm.embedded.cluster import Cluster

    with Cluster() as cluster:
        yield cluster
