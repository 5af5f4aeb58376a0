"""The option `columns`: which columns a query reads; the others are neither decoded nor transferred. Pure.

Spark passes the filters of a query to a Python source, but not its columns, so the query must name them itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm.spark.options.format_options import Format, FormatOptions, OnBad, Options

OPTION: Final = "columns"
HEADERS: Final = "headers"
NAMES: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", HEADERS)
"""In the order of Spark's own source."""


def all_columns(formats: Sequence[FormatOptions], *, include_headers: bool) -> tuple[str, ...]:
    """The columns of a query without the option. Columns for undecodable bytes come last: of values, then of keys."""
    names = [name for name in NAMES if include_headers or name != HEADERS]
    return (*names, *sorted(_corrupt(formats)))


def choose(options: Options, formats: Sequence[FormatOptions], *, include_headers: bool) -> tuple[str, ...] | None:
    """The columns of the option in its order; None without it. Case is ignored, as in Spark's SQL."""
    known = {name.lower(): name for name in (*NAMES, *sorted(_corrupt(formats)))}

    def read(value: str) -> tuple[str, ...]:
        names = [part.strip() for part in value.split(",")]
        for name in names:
            if name.lower() not in known:
                raise ValueError(f"there is no column '{name}'; the columns are {', '.join(known.values())}")
        chosen = tuple(known[name.lower()] for name in names)
        if twice := [name for name in chosen if chosen.count(name) > 1]:
            raise ValueError(f"it names column '{twice[0]}' twice")
        return chosen

    none: tuple[str, ...] | None = None
    chosen = options.get(OPTION, read, none)
    if chosen is not None:
        _check(options, chosen, formats, include_headers=include_headers)
    return chosen


def _check(options: Options, chosen: Sequence[str], formats: Sequence[FormatOptions], *, include_headers: bool) -> None:
    """Refuse an option of a column that is not selected, because it would have no effect."""
    if "includeHeaders" in options and include_headers != (HEADERS in chosen):
        word = str(include_headers).lower()
        raise options.error(OPTION, f"it contradicts includeHeaders={word}; remove one of the two")
    for one in formats:
        if one.format is not Format.BINARY and one.column not in chosen:
            raise options.error(
                OPTION, f"it leaves out '{one.column}', but {one.column}.format={one.format.value} is set"
            )
    for name in sorted(_corrupt(formats) - set(chosen)):
        raise options.error(
            OPTION, f"it leaves out '{name}', the column for values that cannot be decoded with onError=keep"
        )


def _corrupt(formats: Sequence[FormatOptions]) -> set[str]:
    return {one.corrupt for one in formats if one.on_bad is OnBad.KEEP}
