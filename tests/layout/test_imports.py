"""What the import contract in pyproject.toml cannot check: importers of the native module, cycles, and cost."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from klamm import _engine

ROOT = Path(__file__).resolve().parents[2]
KLAMM = ROOT / "python" / "klamm"

SEAM = KLAMM / "_engine"
STUB_LINES_MAX = 500

ROOMS_THAT_KNOW_THE_ENGINE: dict[str, set[str]] = {
    "__init__.py": {"__version__"},
    "broker": {"groups", "metadata"},
    "cli": {"__version__", "quorum", "tools"},
    "client": {"client", "config"},
    "config": {"config"},
    "controller": {"config", "controller", "metadata"},
    "coordinator": {"groups"},
    "embedded": {"client", "metadata"},
    "formats": {"quorum"},
    "metadata": {"config", "metadata", "quorum", "records", "tools"},
    "node": {"__version__", "client", "config", "groups", "metadata", "node", "quorum"},
    "pipelines": {"client", "metadata", "quorum", "records", "tools"},
    "protocol": {"metadata", "protocol"},
    "raft": {"__version__", "client", "quorum"},
    "records.py": {"records"},
    "spark": {"client", "config", "spark"},
    "testing": {"groups", "metadata", "node", "records", "simulation"},
}
"""Folders and files under klamm, and the submodules of klamm._engine that each imports. The core of `raft` has none."""

HEAVY = {
    *("asyncio", "concurrent", "dataclasses", "difflib", "http", "json", "kio", "logging", "py4j", "pyarrow"),
    *("pyarrow.compute", "pyspark", "pyspark.sql.pandas", "random", "rich", "socket", "typer"),
}
"""Modules outside of klamm that take a millisecond or more to import, or that may not be installed.

A function may import one of these, or a module of klamm that needs one, so that starts and commands avoid it.
"""
INCLUDED = {
    "asyncio": {"concurrent", "logging", "socket"},
    "pyspark": {"concurrent", "dataclasses", "json", "logging", "py4j", "socket"},
}
"""Already imported by another heavy module."""
DEFERRING = {
    "klamm": "`import klamm` loads no node",
    "klamm.cli.commands": "a command loads its own modules",
    "klamm.cli.main": "a command loads its own modules, a start loads no command",
    "klamm.cli.node.start": "the first answer comes before these imports",
    "klamm.cli.pipelines.audit": "the help needs no Spark",
    "klamm.controller.decisions": "the first request of a kind loads its manager",
    "klamm.controller.settings": "the first request of a kind loads its manager",
    "klamm.node.boot": "the first answer comes before these imports",
    "klamm.node.broker_part": "the first topic that the broker creates",
    "klamm.node.controller.isr_updates": "the first change of an ISR; a broker alone has none",
    "klamm.node.groups": "the first request about groups loads their coordinator",
    "klamm.node.metadata": "a quorum of one needs no peers",
    "klamm.node.node": "the first request loads its view",
    "klamm.node.requests.handlers": "the first request of a family loads its handlers",
    "klamm.node.share_states": "the first share group loads the coordinator",
    "klamm.node.transactions": "the first transaction loads the coordinator",
    "klamm.pipelines.audit": "Spark's workers load one module",
    "klamm.pipelines.audit.source": "Spark's workers load one module",
}
"""Files whose functions import other modules of klamm because of measured times (docs/decisions 0038 and 0039)."""


def seam_of(file: Path) -> set[str]:
    """What a file imports of klamm._engine, at its top or in a function: submodules, `__version__`, everything."""
    found: set[str] = set()
    for statement in ast.walk(ast.parse(file.read_text())):
        match statement:
            case ast.Import(names=names):
                imported = {one.name for one in names}
            case ast.ImportFrom(module=str(module), names=names):
                imported = {f"{module}.{one.name}" for one in names}
            case _:
                continue
        parts = (one.split(".") for one in imported)
        found |= {(*of_engine, "everything")[2] for of_engine in parts if of_engine[:2] == ["klamm", "_engine"]}
    return found


def test_folders_import_the_listed_submodules() -> None:
    found: dict[str, set[str]] = {}
    for file in KLAMM.rglob("*.py"):
        if seam := seam_of(file):
            found.setdefault(file.relative_to(KLAMM).parts[0], set()).update(seam)
    assert found == ROOMS_THAT_KNOW_THE_ENGINE, "add new modules to the list if they belong there; remove old ones"


def test_a_submodule_of_the_seam_is_short_and_has_unique_names() -> None:
    places: dict[str, str] = {}
    for stub in sorted(SEAM.glob("*.pyi")):
        text = stub.read_text()
        assert text.count("\n") <= STUB_LINES_MAX, f"{stub.name} is too long to be read in ten minutes"
        for name in defined(ast.parse(text)):
            if not name.startswith("_"):
                assert name not in places, f"{name} is in {places[name]} and {stub.name}"
                places[name] = stub.name
    assert "__init__.pyi" not in places.values(), "a name belongs to a submodule"


def test_the_seam_has_the_submodules_that_are_documented() -> None:
    documented = {stub.stem for stub in SEAM.glob("*.pyi")} - {"__init__"}
    present = {name for name, value in vars(_engine).items() if isinstance(value, ModuleType)}
    assert present == documented
    for name in documented:
        assert import_module(f"klamm._engine.{name}") is getattr(_engine, name)


def defined(stub: ast.Module) -> Iterator[str]:
    """The names that a stub defines, without those that it imports."""
    for statement in stub.body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def modules() -> dict[str, Path]:
    """Every file under klamm by the name of its module."""
    found = {}
    for file in KLAMM.rglob("*.py"):
        parts = file.relative_to(KLAMM.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


class Import(NamedTuple):
    """An import statement."""

    statement: ast.Import | ast.ImportFrom
    for_types: bool = False
    """Whether it is for annotations alone."""
    in_function: bool = False


def imports_in(tree: ast.AST, outer: Import | None = None) -> Iterator[Import]:
    """Every import, at the top or in a function."""
    outer = outer or Import(ast.Import([]))
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                yield outer._replace(statement=node)
            case ast.If() if ast.unparse(node.test) == "TYPE_CHECKING":
                yield from imports_in(ast.Module(node.body, []), outer._replace(for_types=True))
                yield from imports_in(ast.Module(node.orelse, []), outer)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from imports_in(node, outer._replace(in_function=True))
            case _:
                yield from imports_in(node, outer)


def packages_of(module: str) -> set[str]:
    """The module and its parent packages."""
    parts = module.split(".")
    return {".".join(parts[: end + 1]) for end in range(len(parts))}


def imported(statement: ast.stmt, files: Mapping[str, Path]) -> set[str]:
    """The files under klamm that a statement imports. A package's own file counts when a name is taken from it."""
    match statement:
        case ast.Import(names=names):
            return {one.name for one in names} & files.keys()
        case ast.ImportFrom(module=str(module), names=names) if module in files:
            whole = {f"{module}.{one.name}" for one in names}
            is_package = files[module].name == "__init__.py"
            return {name if is_package and name in files else module for name in whole}
        case _:
            return set()


def cycle(imports: Mapping[str, set[str]]) -> list[str]:
    """A cycle, or an empty list."""
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
        for one in imports_in(ast.parse(file.read_text())):
            found = imported(one.statement, files)
            with_types[name] |= found
            if not one.for_types:
                at_run_time[name] |= found
    assert not cycle(at_run_time), "move the code that both need to another file"
    assert not cycle(with_types), "an annotation makes a cycle: define its type where it is used"


class Loading:
    """The modules of klamm and others that the import of each klamm module loads."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files
        self.in_functions: list[tuple[str, ast.Import | ast.ImportFrom]] = []
        self._at_top: dict[str, set[str]] = {}
        for name, file in files.items():
            self._at_top[name] = packages_of(name) - {name}
            for one in imports_in(ast.parse(file.read_text())):
                if one.in_function and not one.for_types:
                    self.in_functions.append((name, one.statement))
                elif not one.for_types:
                    self._at_top[name] |= self.named(one.statement)

    def named(self, statement: ast.Import | ast.ImportFrom) -> set[str]:
        """The modules that a statement names, with their parent packages."""
        names = [one.name for one in statement.names]
        if isinstance(statement, ast.ImportFrom):
            names = [str(statement.module), *(f"{statement.module}.{name}" for name in names)]
        found = set[str]().union(*map(packages_of, names))
        return {one for one in found if one in self._files or not one.startswith("klamm")}

    def by(self, modules: set[str]) -> set[str]:
        """All modules that these modules load."""
        loaded, waiting = set[str](), list(modules)
        while waiting:
            module = waiting.pop()
            if module not in loaded:
                loaded.add(module)
                waiting += self._at_top.get(module, set()) | INCLUDED.get(module, set())
        return loaded


def test_heavy_modules_are_imported_in_functions() -> None:
    loading = Loading(modules())
    deferring = set[str]()
    for name, statement in loading.in_functions:
        if loading.by(loading.named(statement)) - loading.by({name}) & HEAVY:
            continue
        deferring.add(name)
        where = f"{name}:{statement.lineno}"
        assert name in DEFERRING, f"{where}: move `{ast.unparse(statement)}` to the top of the file"
    assert deferring == DEFERRING.keys(), "these defer nothing any more: take them off the list"
