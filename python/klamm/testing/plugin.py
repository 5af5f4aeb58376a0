"""The pytest plugin of the package: a klamm cluster for each test that uses the fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from klamm.embedded.cluster import Cluster


MARKER: Final = "klamm_cluster"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", f"{MARKER}(brokers=1, controllers=None, config=None): the size and configuration of the fixture"
    )


@pytest.fixture
def klamm_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for this test: in this process, on free ports, in a temporary folder that is deleted afterwards.

    It is one node, or what `@pytest.mark.klamm_cluster(brokers=3)` on the test, its class or its module asks for, with
    the keyword arguments of `klamm.Cluster`; the closest one wins for each.

    Clients connect to `klamm_cluster.bootstrap_servers`. Tests may run in parallel, with pytest-xdist in particular.
    """
    # Not at the top: every run of pytest imports the plugin, whether or not a test uses a cluster.
    from klamm.embedded.cluster import Cluster

    given: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        if marker.args:
            raise pytest.UsageError(f"@pytest.mark.{MARKER} takes arguments by name, as in brokers=3")
        given |= marker.kwargs
    with Cluster(**given) as cluster:
        yield cluster
