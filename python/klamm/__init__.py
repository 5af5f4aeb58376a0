"""klamm: a Kafka-compatible durable log and its KRaft metadata quorum, in a Python package."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.embedded.cluster import Cluster, StoredRecord

__all__ = ["Cluster", "StoredRecord", "__version__"]

__version__: str

_FROM_CLUSTER = frozenset({"Cluster", "StoredRecord"})

if not TYPE_CHECKING:  # for whom everything is above

    def __getattr__(name: str) -> object:
        """Expensive modules are imported on first access, so that `import klamm` stays fast."""
        if name == "__version__":
            from klamm._engine import __version__

            return __version__
        if name in _FROM_CLUSTER:
            from klamm.embedded import cluster

            return getattr(cluster, name)
        raise AttributeError(f"module 'klamm' has no attribute '{name}'")
