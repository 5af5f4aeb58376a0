"""The options of `klamm mirror`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from klamm.cli.framework.options import Argument, Option

_WHAT = "What is mirrored"
_HOW = "How"

Names = Annotated[list[str] | None, Argument(metavar="TOPIC...", help="Topics by name.")]
Source = Annotated[str, Option("--from", metavar="HOST:PORT,...", help="Any broker of the source.")]
Target = Annotated[str, Option("--to", metavar="HOST:PORT,...", help="Any broker of the target.")]
Checkpoint = Annotated[
    Path, Option(metavar="DIR", help="How far the mirror has come. Keep it: without it all is copied again.")
]
Patterns = Annotated[
    list[str] | None,
    Option(
        "--pattern",
        "-p",
        metavar="REGEX",
        help="Topics whose whole name matches, also those that come later. May be repeated, as all that follow.",
        panel=_WHAT,
    ),
]
Exclude = Annotated[
    list[str] | None,
    Option(metavar="REGEX", help="Topics that --pattern does not take.", panel=_WHAT),
]
Groups = Annotated[
    list[str] | None,
    Option(metavar="NAME", help="A group whose commits are translated.", panel=_WHAT),
]
GroupPatterns = Annotated[
    list[str] | None,
    Option(metavar="REGEX", help="Groups whose whole name matches.", panel=_WHAT),
]
Prefix = Annotated[str, Option(metavar="TEXT", help="Put before the names of topics on the target.", panel=_WHAT)]
Rename = Annotated[
    list[str] | None,
    Option(metavar="TOPIC=NAME", help="What a topic is called on the target.", panel=_WHAT),
]
ExcludedConfigs = Annotated[
    list[str] | None,
    Option(metavar="REGEX", help="Configs of topics that the target keeps.", panel=_WHAT),
]
Once = Annotated[bool, Option("--once", help="Copy what there is now, and end.", panel=_HOW)]
AllowDataLoss = Annotated[
    bool,
    Option("--allow-data-loss", help="Go on where the source lost what was not read yet.", panel=_HOW),
]
Interval = Annotated[float, Option(min=0.1, metavar="SECONDS", help="How often to look after the rest.", panel=_HOW)]
BatchRecords = Annotated[int, Option(min=1, metavar="COUNT", help="Records of a micro-batch.", panel=_HOW)]
ReplicationFactor = Annotated[int, Option(min=-1, help="Of topics made on the target; -1: its default.", panel=_HOW)]
SourceConfig = Annotated[
    list[str] | None,
    Option(metavar="KEY=VALUE", help="A key of Kafka's consumer.", panel=_HOW),
]
TargetConfig = Annotated[
    list[str] | None,
    Option(metavar="KEY=VALUE", help="A key of Kafka's producer.", panel=_HOW),
]
SourceFile = Annotated[
    Path | None,
    Option("--source-config-file", metavar="FILE", help="The same as properties: TLS, SASL.", panel=_HOW),
]
TargetFile = Annotated[
    Path | None,
    Option("--target-config-file", metavar="FILE", help="So for the target.", panel=_HOW),
]
Master = Annotated[
    str | None,
    Option(metavar="URL", help="Spark's master; this machine's cores without.", panel=_HOW),
]
SparkConf = Annotated[
    list[str] | None,
    Option(metavar="KEY=VALUE", help="A key of Spark.", panel=_HOW),
]
