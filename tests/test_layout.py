"""What the import contract in pyproject.toml cannot see: who imports the native module."""

from __future__ import annotations

import ast
from pathlib import Path

KLAMM = Path(__file__).resolve().parent.parent / "python" / "klamm"

ROOMS_THAT_KNOW_THE_ENGINE = {
    "__init__.py": "the version",
    "admin": "connections by TLS and SASL",
    "broker": "the config keys",
    "cli": "the version, and the errors that a person is told",
    "config": "the config keys",
    "controller": "the metadata image",
    "coordinator": "OffsetCommit requests as the engine has read them",
    "embedded": "the image that a cluster waits for",
    "formats": "storage errors, and checkpoints",
    "metadata": "the reader of metadata logs, and images",
    "node": "everything: it introduces the parts to each other",
    "pipelines": "the reader of metadata logs",
    "protocol": "message schemas, metadata records and config keys",
    "raft": "the native log and its snapshots, behind the port that the driver asks for",
    "client.py": "the client of brokers in public",
    "records.py": "the record codec in public",
    "spark": "the client of brokers, which moves the bytes",
}
"""Folders and files under klamm, and what for. The core of `raft` does without."""


def imports_the_engine(file: Path) -> bool:
    """Whether any statement of the file, at its top or inside a function, imports klamm._engine."""
    for statement in ast.walk(ast.parse(file.read_text())):
        match statement:
            case ast.Import(names=names):
                imported = {one.name for one in names}
            case ast.ImportFrom(module=str(module), names=names):
                imported = {module, *(f"{module}.{one.name}" for one in names)}
            case _:
                continue
        if "klamm._engine" in imported:
            return True
    return False


def test_only_listed_rooms_import_the_native_module() -> None:
    files = [file.relative_to(KLAMM) for file in KLAMM.rglob("*.py") if imports_the_engine(file)]
    found = {file.parts[0]: file for file in files}
    unlisted = {room: str(file) for room, file in found.items() if room not in ROOMS_THAT_KNOW_THE_ENGINE}
    assert not unlisted, f"list them here with a reason, or import through another room: {unlisted}"
    unused = ROOMS_THAT_KNOW_THE_ENGINE.keys() - found.keys()
    assert not unused, f"these no longer import klamm._engine, take them off the list: {sorted(unused)}"
