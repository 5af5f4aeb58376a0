"""Finds the refusals in the core's source, and removes one of them.

A refusal is an `if`, or the branch of a conditional expression, that contains an error of the protocol or a `Refusal`:
a peer or an operator gets it instead of the requested operation. Without the refusal, that branch is never taken.
"""

import ast
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

MODULES = (
    "election.elections",
    "node",
    "replication.following",
    "replication.leading",
    "replication.snapshot_fetching",
    "replication.snapshot_serving",
    "voters.reconfiguration",
)


class Place(NamedTuple):
    """A refusal: the module, the qualified name of the function, and the condition as in the source."""

    module: str
    function: str
    condition: str

    def __str__(self) -> str:
        return f"{self.module}.{self.function}: {self.condition}"


def refusals() -> list[Place]:
    """All refusals in the order of the source."""
    return [place for module in MODULES for place, _ in _refusals_of(module, _parse(module))]


@contextmanager
def without(place: Place) -> Iterator[None]:
    """The core without that refusal."""
    tree = _parse(place.module)
    refusing = next(node for found, node in _refusals_of(place.module, tree) if found == place)
    is_otherwise = isinstance(refusing, ast.IfExp) and _speaks_of_an_error(refusing.orelse)
    refusing.test = ast.copy_location(ast.Constant(is_otherwise), refusing.test)
    function = _function_of(place)
    code, function.__code__ = function.__code__, _code_of(compile(tree, place.module, "exec"), place.function)
    try:
        yield
    finally:
        function.__code__ = code


def _parse(module: str) -> ast.Module:
    path = importlib.import_module(f"klamm.raft.{module}").__file__
    assert path is not None
    return ast.parse(Path(path).read_text())


def _refusals_of(module: str, tree: ast.AST, outer: tuple[str, ...] = ()) -> Iterator[tuple[Place, ast.If | ast.IfExp]]:
    for node in ast.iter_child_nodes(tree):
        inner = (*outer, node.name) if isinstance(node, ast.FunctionDef | ast.ClassDef) else outer
        if isinstance(node, ast.If | ast.IfExp) and any(map(_speaks_of_an_error, _branches(node))):
            yield Place(module, ".".join(outer), ast.unparse(node.test)), node
        yield from _refusals_of(module, node, inner)


def _branches(node: ast.If | ast.IfExp) -> Sequence[ast.AST]:
    return node.body if isinstance(node, ast.If) else (node.body, node.orelse)


def _speaks_of_an_error(branch: ast.AST) -> bool:
    """Whether the branch itself contains an error; nested branches have conditions of their own."""
    if isinstance(branch, ast.If | ast.IfExp):
        return False
    if isinstance(branch, ast.Attribute) and ast.unparse(branch.value) == "Error":
        return branch.attr != "NONE"
    if isinstance(branch, ast.Name) and branch.id == "Refusal":
        return True
    return any(map(_speaks_of_an_error, ast.iter_child_nodes(branch)))


def _function_of(place: Place) -> FunctionType:
    found: object = importlib.import_module(f"klamm.raft.{place.module}")
    for name in place.function.split("."):
        found = getattr(found, name)
    assert isinstance(found, FunctionType)
    return found


def _code_of(code: CodeType, function: str) -> CodeType:
    for name in function.split("."):
        code = next(inner for inner in code.co_consts if isinstance(inner, CodeType) and inner.co_name == name)
    return code
