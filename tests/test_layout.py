"""What the import contract in pyproject.toml cannot see: who imports the native module, and cycles between files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

KLAMM = Path(__file__).resolve().parent.parent / "python" / "klamm"

ROOMS_THAT_KNOW_THE_ENGINE = {
    "__init__.py": "the version",
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
    "client": "the engine's client, in public and between nodes",
    "records.py": "the record codec in public",
    "spark": "the client of brokers, which moves the bytes",
}
"""Folders and files under klamm, and what for. The core of `raft` does without."""

CYCLES_OF_TYPES = {
    ("klamm.raft.recipes.driver.session", "klamm.raft.recipes.driver.tree"): "a tree opens sessions, which are its own",
    ("klamm.testing.simulator.network", "klamm.testing.simulator.world"): "the world's parts act on the world",
    ("klamm.testing.simulator.operations", "klamm.testing.simulator.world"): "the world's parts act on the world",
}
"""Two files of which the second imports the first, and the first names a type of the second in annotations alone."""


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


def modules() -> dict[str, Path]:
    """Every file under klamm by the name of its module."""
    found = {}
    for file in KLAMM.rglob("*.py"):
        parts = file.relative_to(KLAMM.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def statements(tree: ast.AST, for_types: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """Every import, at the top or in a function, and whether it is for annotations alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, for_types
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from statements(ast.Module(node.body, []), True)
            yield from statements(ast.Module(node.orelse, []), for_types)
        else:
            yield from statements(node, for_types)


def imported(statement: ast.stmt, files: Mapping[str, Path]) -> set[str]:
    """The files under klamm that a statement imports. A package's own file counts when a name is taken from it."""
    match statement:
        case ast.Import(names=names):
            return {one.name for one in names} & files.keys()
        case ast.ImportFrom(module=str(module), names=names) if module in files:
            whole = {f"{module}.{one.name}" for one in names}
            is_package = files[module].name == "__init__.py"
            return {name if is_package and (name in files or name == "klamm._engine") else module for name in whole} - {
                "klamm._engine"
            }
        case _:
            return set()


def cycle(imports: Mapping[str, set[str]]) -> list[str]:
    """A cycle, empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_files_do_not_import_each_other_in_a_cycle() -> None:
    files = modules()
    at_run_time: dict[str, set[str]] = {name: set() for name in files}
    with_types: dict[str, set[str]] = {name: set() for name in files}
    for name, file in files.items():
        for statement, for_types in statements(ast.parse(file.read_text())):
            found = imported(statement, files)
            with_types[name] |= found
            if not for_types:
                at_run_time[name] |= found
    assert not cycle(at_run_time), "move what both need to a file of its own"
    for (first, second), reason in CYCLES_OF_TYPES.items():
        assert second in with_types[first] - at_run_time[first], f"no longer a cycle, take it off the list: {reason}"
        with_types[first].discard(second)
    assert not cycle(with_types), "an annotation makes a cycle: define what it needs where it is used, or list it"
