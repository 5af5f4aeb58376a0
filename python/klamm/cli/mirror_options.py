"""The options of `klamm mirror`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_WHAT = "What is mirrored"
_HOW = "How"

Names = Annotated[list[str] | None, typer.Argument(metavar="TOPIC...", help="Topics by name.")]
Source = Annotated[str, typer.Option("--from", metavar="HOST:PORT,...", help="Any broker of the source.")]
Target = Annotated[str, typer.Option("--to", metavar="HOST:PORT,...", help="Any broker of the target.")]
Checkpoint = Annotated[
    Path, typer.Option(metavar="DIR", help="How far the mirror has come. Keep it: without it all is copied again.")
]
Patterns = Annotated[
    list[str] | None,
    typer.Option(
        "--pattern",
        "-p",
        metavar="REGEX",
        help="Topics whose whole name matches, also those that come later. May be repeated, as all that follow.",
        rich_help_panel=_WHAT,
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="REGEX", help="Topics that --pattern does not take.", rich_help_panel=_WHAT),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A group whose commits are translated.", rich_help_panel=_WHAT),
]
GroupPatterns = Annotated[
    list[str] | None,
    typer.Option(metavar="REGEX", help="Groups whose whole name matches.", rich_help_panel=_WHAT),
]
Prefix = Annotated[
    str, typer.Option(metavar="TEXT", help="Put before the names of topics on the target.", rich_help_panel=_WHAT)
]
Rename = Annotated[
    list[str] | None,
    typer.Option(metavar="TOPIC=NAME", help="What a topic is called on the target.", rich_help_panel=_WHAT),
]
ExcludedConfigs = Annotated[
    list[str] | None,
    typer.Option(metavar="REGEX", help="Configs of topics that the target keeps.", rich_help_panel=_WHAT),
]
Once = Annotated[bool, typer.Option("--once", help="Copy what there is now, and end.", rich_help_panel=_HOW)]
AllowDataLoss = Annotated[
    bool,
    typer.Option("--allow-data-loss", help="Go on where the source lost what was not read yet.", rich_help_panel=_HOW),
]
Interval = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="How often to look after the rest.", rich_help_panel=_HOW)
]
BatchRecords = Annotated[
    int, typer.Option(min=1, metavar="COUNT", help="Records of a micro-batch.", rich_help_panel=_HOW)
]
ReplicationFactor = Annotated[
    int, typer.Option(min=-1, help="Of topics made on the target; -1: its default.", rich_help_panel=_HOW)
]
SourceConfig = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A key of Kafka's consumer.", rich_help_panel=_HOW),
]
TargetConfig = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A key of Kafka's producer.", rich_help_panel=_HOW),
]
SourceFile = Annotated[
    Path | None,
    typer.Option(
        "--source-config-file", metavar="FILE", help="The same as properties: TLS, SASL.", rich_help_panel=_HOW
    ),
]
TargetFile = Annotated[
    Path | None,
    typer.Option("--target-config-file", metavar="FILE", help="So for the target.", rich_help_panel=_HOW),
]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master; this machine's cores without.", rich_help_panel=_HOW),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A key of Spark.", rich_help_panel=_HOW),
]
