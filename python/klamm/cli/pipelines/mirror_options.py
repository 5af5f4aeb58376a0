"""The options of `klamm mirror`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from klamm.cli.framework.options import Argument, Option

_WHAT = "What is mirrored"
_HOW = "How"

Names = Annotated[list[str] | None, Argument(metavar="TOPIC...", help="Topic names.")]
Source = Annotated[str, Option("--from", metavar="HOST:PORT,...", help="Any broker of the source cluster.")]
Target = Annotated[str, Option("--to", metavar="HOST:PORT,...", help="Any broker of the target cluster.")]
Checkpoint = Annotated[
    Path,
    Option(
        metavar="DIR", help="The directory that records the progress. Keep it: without it everything is copied again."
    ),
]
Patterns = Annotated[
    list[str] | None,
    Option(
        "--pattern",
        "-p",
        metavar="REGEX",
        help="Topics whose whole name matches, also later topics. May be repeated, like the options below.",
        panel=_WHAT,
    ),
]
Exclude = Annotated[
    list[str] | None,
    Option(metavar="REGEX", help="Topics that --pattern leaves out.", panel=_WHAT),
]
Groups = Annotated[
    list[str] | None,
    Option(metavar="NAME", help="A consumer group whose committed offsets are translated.", panel=_WHAT),
]
GroupPatterns = Annotated[
    list[str] | None,
    Option(metavar="REGEX", help="Consumer groups whose whole name matches.", panel=_WHAT),
]
Prefix = Annotated[str, Option(metavar="TEXT", help="A prefix for the topic names on the target.", panel=_WHAT)]
Rename = Annotated[
    list[str] | None,
    Option(metavar="TOPIC=NAME", help="The name of a topic on the target.", panel=_WHAT),
]
ExcludedConfigs = Annotated[
    list[str] | None,
    Option(metavar="REGEX", help="Topic configurations that are not copied to the target.", panel=_WHAT),
]
Once = Annotated[bool, Option("--once", help="Copy the records that exist now, then end.", panel=_HOW)]
AllowDataLoss = Annotated[
    bool,
    Option(
        "--allow-data-loss", help="Continue when the source has deleted records that were not read yet.", panel=_HOW
    ),
]
Interval = Annotated[
    float, Option(min=0.1, metavar="SECONDS", help="How often to check topics, configurations and groups.", panel=_HOW)
]
BatchRecords = Annotated[
    int, Option(min=1, metavar="COUNT", help="The largest number of records in a micro-batch.", panel=_HOW)
]
ReplicationFactor = Annotated[
    int,
    Option(
        min=-1, help="The replication factor of topics created on the target; -1 is the target's default.", panel=_HOW
    ),
]
SourceConfig = Annotated[
    list[str] | None,
    Option(metavar="KEY=VALUE", help="A consumer configuration key of Apache Kafka.", panel=_HOW),
]
TargetConfig = Annotated[
    list[str] | None,
    Option(metavar="KEY=VALUE", help="A producer configuration key of Apache Kafka.", panel=_HOW),
]
SourceFile = Annotated[
    Path | None,
    Option(
        "--source-config-file",
        metavar="FILE",
        help="A properties file for the source's consumer: TLS and SASL.",
        panel=_HOW,
    ),
]
TargetFile = Annotated[
    Path | None,
    Option(
        "--target-config-file",
        metavar="FILE",
        help="A properties file for the target's producer: TLS and SASL.",
        panel=_HOW,
    ),
]
Master = Annotated[
    str | None,
    Option(metavar="URL", help="Spark's master; the cores of this machine by default.", panel=_HOW),
]
SparkConf = Annotated[
    list[str] | None,
    Option(metavar="KEY=VALUE", help="A configuration key of Spark.", panel=_HOW),
]
