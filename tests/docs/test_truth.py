"""What the documentation says and lists about the code is compared with the code."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from klamm.broker.lifecycle import NEXT_STATES
from klamm.controller.nodes import heartbeats
from klamm.raft.election import roles
from tests.docs.pages import ROOT, pages
from tests.simulation.broker_mutations.guards import DIRECTED, FAULTS, SCENARIOS

ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
OF_THE_REPOSITORY = re.compile(r"`((?:rust|python|tests|docs|examples|benches|tools)/[\w./-]*\w/?)`")
OF_THE_PACKAGE = re.compile(r"`(klamm(?:\.[a-z_]\w*)+)`")
SHORT_PATH = re.compile(r"`([a-z]\w*/[\w./-]*)`")
NAME_IN_CODE = re.compile(r"`(?:klamm_\w+::)?([A-Z][A-Za-z]+(?:(?:::|\.)\w+)?)`")
DEFINED = re.compile(r"^[^/#\"\n]*?\b(?:class|struct|enum|trait|type|fn|def)\s+(\w+)|^    (\w+),?$", re.MULTILINE)
OF_MAKE = re.compile(r"`make ([a-z-]+)|^make ([a-z-]+)", re.MULTILINE)
MAPS = ("ARCHITECTURE.md", "CONTRIBUTING.md")
KLAMM = ROOT / "python" / "klamm"


@pytest.mark.parametrize("table", [roles.markdown_table, heartbeats.printed_table])
def test_the_state_tables_are_those_of_the_code(table) -> None:  # type: ignore[no-untyped-def]
    assert table().strip() in ARCHITECTURE, f"paste this into ARCHITECTURE.md:\n{table()}"


def test_the_life_cycle_is_that_of_the_code() -> None:
    for state, following in NEXT_STATES.items():
        shown = ", ".join(sorted(one.name for one in following)) or "(end)"
        assert f"| {state.name} | {shown} |" in ARCHITECTURE


def test_every_crate_and_package_is_in_the_map() -> None:
    crates = {f"rust/{manifest.parent.name}" for manifest in ROOT.glob("rust/*/Cargo.toml")}
    packages = {f"python/klamm/{file.parent.name}/" for file in ROOT.glob("python/klamm/*/__init__.py")}
    missing = [room for room in sorted(crates | packages) if f"`{room}" not in ARCHITECTURE]
    assert not missing, f"ARCHITECTURE.md does not say what {missing} are"


@pytest.mark.parametrize("page", pages())
def test_named_files_and_modules_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    paths = [path for path in OF_THE_REPOSITORY.findall(text) if not _exists(path)]
    modules = [name for name in OF_THE_PACKAGE.findall(text) if not _is_of_klamm(name)]
    assert not paths + modules, f"{page} names what does not exist"


def _exists(path: str, base: Path = ROOT) -> bool:
    place = base / path
    return place.exists() or any(place.parent.glob(f"{place.name}.*"))


@pytest.mark.parametrize("page", MAPS)
def test_paths_within_crates_and_packages_exist(page: str) -> None:
    """They begin with a crate, or are relative to its sources or to a package."""
    bases = [*ROOT.glob("rust/*/src"), *(ROOT / base for base in ("rust", "python", "python/klamm/testing"))]

    def exists(path: str) -> bool:
        crate, _, rest = path.partition("/")
        relative = any(_exists(path, base) for base in (ROOT, *bases, KLAMM))
        return relative or _exists(rest, ROOT / "rust" / crate / "src")

    missing = [path for path in SHORT_PATH.findall((ROOT / page).read_text()) if not exists(path)]
    assert not missing, f"{page} names paths that do not exist"


def test_named_types_and_functions_exist() -> None:
    sources = [*ROOT.glob("rust/*/src/**/*.rs"), *KLAMM.glob("**/*.py"), *KLAMM.glob("**/*.pyi")]
    defined = {name for file in sources for names in DEFINED.findall(file.read_text()) for name in names}
    missing = [name for name in NAME_IN_CODE.findall(ARCHITECTURE) if not set(re.split(r"::|\.", name)) <= defined]
    assert not missing, "ARCHITECTURE.md names what the code does not define"


@pytest.mark.parametrize("page", pages())
def test_named_targets_are_in_the_makefile(page: str) -> None:
    targets = {target for line in re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE) for target in line.split()}
    assert {one or other for one, other in OF_MAKE.findall((ROOT / page).read_text())} <= targets


def test_make_lists_the_targets_for_contributors() -> None:
    headings = re.findall(r"^## (make .*?)  ", MAKEFILE, re.MULTILINE)
    listed = {target for heading in headings for target in re.findall(r"make ([a-z-]+)", heading)}
    named = OF_MAKE.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert {one or other for one, other in named} <= listed


def _is_of_klamm(name: str) -> bool:
    """Whether it is a module, an attribute of a module, or a configuration key."""
    parent, _, last = name.rpartition(".")
    try:
        if find_spec(name) is not None or hasattr(import_module(parent), last):
            return True
    except ModuleNotFoundError:
        pass
    except ValueError:
        return True  # a module of the engine is imported, because it has no file
    return any(f'"{name}"' in file.read_text() for file in Path(ROOT / "rust/config/src").rglob("klamm.rs"))


def test_the_list_of_decisions_is_complete() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^- \[(\d+)\. (.+)\]\((.+)\)$", (folder / "index.md").read_text(), re.MULTILINE)
    found = sorted(folder.glob("0*.md"))
    assert sorted(file for _, _, file in listed) == [file.name for file in found]
    assert [int(file.name[:4]) for file in found] == list(range(1, len(found) + 1)), "numbers are given once"
    for number, title, file in listed:
        assert (folder / file).read_text().startswith(f"# {number}. {title}\n"), file


def test_the_rules_that_tests_remove_are_counted() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    found = re.search(r"Tests remove (\d+) rules from the product, one at a time: ([^.]+)\.", page)
    assert found is not None
    count = len({*SCENARIOS, *FAULTS, *DIRECTED})
    assert int(found[1]) == sum(map(int, re.findall(r"\d+", found[2]))) == count


def test_every_klamm_key_is_described() -> None:
    keys = re.findall(r'"(klamm\.[a-z.]+)"', (ROOT / "rust" / "config" / "src" / "klamm.rs").read_text())
    page = (ROOT / "docs" / "operations" / "node.md").read_text()
    missing = [key for key in keys if f"`{key}`" not in page]
    assert keys
    assert not missing, f"docs/operations/node.md does not describe {missing}"
