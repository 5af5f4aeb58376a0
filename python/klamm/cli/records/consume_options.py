"""The options of `klamm consume`."""

from __future__ import annotations

from typing import Annotated

from klamm.cli.framework.options import Option

Start = Annotated[
    str | None,
    Option(
        "--from",
        metavar="POSITION",
        help="Where to start: beginning (the default), end, an offset, -N from the end, or a time.",
    ),
]
FromBeginning = Annotated[bool, Option("--from-beginning", help="The same as --from beginning.")]
Offset = Annotated[
    str | None,
    Option("--offset", metavar="OFFSET", help="The start offset in --partition: earliest, latest or a number."),
]
Count = Annotated[int | None, Option("--count", "-n", min=1, help="Stop after this number of records.")]
Follow = Annotated[bool, Option("--follow", "-f", help="Wait for new records at the end, until Ctrl-C.")]
Partitions = Annotated[
    list[int] | None, Option("--partition", min=0, help="Read only this partition. May be repeated.")
]
Group = Annotated[
    str | None,
    Option("--group", "-g", help="Join this consumer group: read the assigned partitions and commit offsets."),
]
Instance = Annotated[
    str | None,
    Option(
        "--group-instance-id",
        metavar="ID",
        help="Join as a static member: keep the assignment when returning within the session timeout, 45 s.",
    ),
]
GroupProtocol = Annotated[
    str,
    Option(
        "--group-protocol",
        metavar="NAME",
        help="classic, or consumer: the coordinator assigns, and moves only what must move (KIP-848).",
    ),
]
Share = Annotated[
    bool,
    Option("--share", help="Join --group as a share group: take single records, and acknowledge each (KIP-932)."),
]
Acknowledge = Annotated[
    str | None,
    Option(
        "--acknowledge",
        metavar="TYPE",
        help="With --share: accept each record (the default), release it for another delivery, or reject it.",
    ),
]
ShowKey = Annotated[bool, Option("--key", "-k", help="Print each key before its value.")]
