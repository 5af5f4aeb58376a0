"""`klamm mirror`: copies topics to another cluster with Spark Structured Streaming, and translates groups' offsets.

from klamm.pipelines.mirror import MirrorOptions, mirror, topics

mirror(MirrorOptions("here:9092", "there:9092", "mirror-state", topics(names=["orders"])))
"""

from __future__ import annotations

from klamm.pipelines.mirror.groups import Moved
from klamm.pipelines.mirror.options import MirrorError, MirrorOptions, MirrorProgress, TopicProgress
from klamm.pipelines.mirror.run import mirror
from klamm.pipelines.mirror.selection import Naming, Selection, SelectionError, groups, topics

__all__ = [
    "MirrorError",
    "MirrorOptions",
    "MirrorProgress",
    "Moved",
    "Naming",
    "Selection",
    "SelectionError",
    "TopicProgress",
    "groups",
    "mirror",
    "topics",
]
