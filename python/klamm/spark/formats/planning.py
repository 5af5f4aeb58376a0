"""In the driver: determines the reader's schema once and pins it, so that all tasks use the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from klamm.spark.formats.protobuf.files import parse
from klamm.spark.formats.protobuf.well_known import WELL_KNOWN
from klamm.spark.formats.reading import Reading, reading_of
from klamm.spark.formats.registry import Registry, UnknownSubjectError
from klamm.spark.formats.schema_text import SchemaText
from klamm.spark.formats.shapes import SchemaError, Shape
from klamm.spark.options.format_options import HAVE_SCHEMAS, Format, FormatOptions, Framing

_KINDS = {Format.AVRO: "AVRO", Format.PROTOBUF: "PROTOBUF"}


class PlanningError(ValueError):
    """The reader's schema is not available or not usable; the message names the option and its value."""


def pin(options: FormatOptions, topics: Sequence[str] | None) -> FormatOptions:
    """The options with the reader's schema. `topics`: the topics that are read, None for a pattern.

    Raises PlanningError, RegistryError.
    """
    if options.format not in HAVE_SCHEMAS:
        return options
    wanted = _from_options(options) or _from_registry(options, topics)
    if wanted.kind != _KINDS[options.format]:
        raise PlanningError(
            f"option '{options.column}.format' is '{options.format.value}', and {wanted.origin} is of the kind "
            f"{wanted.kind}"
        )
    pinned = replace(options, wanted=wanted)
    shape_of(pinned)
    return pinned


def shape_of(options: FormatOptions) -> Shape | None:
    """The column of pinned options; None if no schema defines it. Raises PlanningError."""
    reading = read_as(options)
    return None if reading is None else reading.shape


def read_as(options: FormatOptions) -> Reading | None:
    """The reader's schema, compiled. Raises PlanningError."""
    if options.wanted is None:
        return None
    try:
        reading = reading_of(options.wanted, options.message)
        reading.program(None)
    except SchemaError as error:
        raise PlanningError(f"{options.wanted.origin}: {error}") from None
    return reading


def _from_options(options: FormatOptions) -> SchemaText | None:
    column, kind = options.column, _KINDS[options.format]
    if options.schema is not None:
        return SchemaText(kind, options.schema, origin=f"option '{column}.schema'")
    if options.schema_file is None:
        return None
    origin = f"option '{column}.schema.file' is '{options.schema_file}'"
    path = Path(options.schema_file)
    text = _text(path, origin)
    imports = _imports(path, text, origin) if options.format is Format.PROTOBUF else ()
    return SchemaText(kind, text, imports, origin)


def _text(path: Path, origin: str) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise PlanningError(f"{origin}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise PlanningError(f"{origin}: it is no text") from None


def _imports(path: Path, text: str, origin: str) -> tuple[tuple[str, str], ...]:
    """The imports of a `.proto` file, from its folder and the folders above, the nearest first."""
    found: dict[str, str] = {}
    try:
        missing = list(parse(text, path.name).imports)
        while missing:
            name = missing.pop()
            if name in found or name in WELL_KNOWN:
                continue
            file = next((folder / name for folder in path.absolute().parents if (folder / name).is_file()), None)
            if file is None:
                raise SchemaError(f"it imports '{name}', which is in no folder above it")
            found[name] = _text(file, origin)
            missing += parse(found[name], name).imports
    except SchemaError as error:
        raise PlanningError(f"{origin}: {error}") from None
    return tuple(found.items())


def _from_registry(options: FormatOptions, topics: Sequence[str] | None) -> SchemaText:
    assert options.registry is not None
    column = options.column
    subject = options.subject
    if subject is None and topics is not None and len(topics) == 1:
        subject = f"{topics[0]}-{column}"
    if subject is None:
        what = "a pattern says which topics" if topics is None else f"there are the topics {', '.join(topics)}"
        raise PlanningError(
            f"option '{column}.schema.subject' is missing: {what}, and one schema is what all of them are read as; "
            f"name its subject, or give the schema by '{column}.schema' or '{column}.schema.file'"
        )
    try:
        return Registry(options.registry).latest(subject)
    except UnknownSubjectError as error:
        raise PlanningError(
            f"{error}; option '{column}.schema.subject' can name another one, '{column}.schema.file' the schema itself"
        ) from None


def is_own(options: FormatOptions) -> bool:
    """Whether all values are written with the reader's schema: they name no other, or there is no registry."""
    return options.framing is Framing.NONE or options.registry is None
