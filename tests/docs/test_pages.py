"""Every page is correct: its blocks run from top to bottom as they are, except those that are marked.

Pages about Spark are run by `tests/spark/test_pages.py`, docs/spark/environments.md by
`tests/spark/test_environments.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

import pytest

from tests.docs.page_runner import PageRunner, running_page
from tests.docs.pages import LANGUAGES, NOT_RUN_MAX, ROOT, Block, blocks, pages
from tests.support.lost_majority import make_three
from tests.support.node_process import NodeProcess

WITH_SPARK: Final = ("README.md#For notebooks and Spark", "docs/spark/", "docs/pipelines/")


@contextmanager
def running_node(runner: PageRunner) -> Iterator[None]:
    """A node on the page's localhost:9092, its controller on 9093, its data in ./klamm-data, with a topic `orders`.

    It is the static voter of its quorum.
    """
    broker, controller = runner.port(9092), runner.port(9093)
    overrides = {
        "listeners": f"PLAINTEXT://localhost:{broker},CONTROLLER://localhost:{controller}",
        "controller.quorum.voters": f"1@localhost:{controller}",
    }
    with NodeProcess(runner.work / "klamm-data", port=broker, overrides=overrides):
        runner.run(Block("setup", "", 0, "sh", "klamm topics create orders\nklamm produce orders 1 2 3\n"))
        yield


@contextmanager
def stopped_node(runner: PageRunner) -> Iterator[None]:
    """The data of such a node after a controlled shutdown."""
    with running_node(runner):
        pass
    yield


@contextmanager
def node_and_survivor(runner: PageRunner) -> Iterator[None]:
    """A node, and the directory of one of three voters, the others being lost."""
    shutil.move(make_three(runner.folder / "three", 1)[0], runner.work / "survivor")
    with running_node(runner):
        yield


Setup = Callable[[PageRunner], AbstractContextManager[None]]
SETUPS: Final[Mapping[str, Setup]] = {
    "docs/operations/controllers.md": running_node,
    "docs/operations/damage.md": stopped_node,
    "docs/operations/doctor.md": node_and_survivor,
    "docs/operations/metadata.md": running_node,
}
"""What a page assumes to exist."""


def is_of_spark(block: Block) -> bool:
    """Whether it is run by the process with a JVM."""
    return f"{block.page}#{block.section}".startswith(WITH_SPARK)


EVERY: Final = [block for page in pages() for block in blocks(page)]
PAGES: Final = list(
    dict.fromkeys(b.page for b in EVERY if b.is_executable and not b.why_not_run and not is_of_spark(b))
)


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    with running_page(tmp_path) as runner, SETUPS.get(page, lambda _: nullcontext())(runner):
        for block in blocks(page):
            if not block.why_not_run and not is_of_spark(block):
                runner.run(block)


def test_every_page_about_spark_runs_there() -> None:
    tested = "".join(
        (ROOT / "tests" / "spark" / name).read_text() for name in ("test_pages.py", "test_environments.py")
    )
    of_spark = {block.page for block in EVERY if block.is_executable and is_of_spark(block)}
    missing = [page for page in of_spark if f'{page.removeprefix("docs/")}"' not in tested.replace('" / "', "/")]
    assert not missing, f"tests/spark runs no block of {missing}"


def test_every_block_says_what_it_is() -> None:
    wrong = [block.place for block in EVERY if block.language not in LANGUAGES]
    assert not wrong, f"give these blocks one of the languages {sorted(LANGUAGES)}: {wrong}"


def test_few_blocks_are_not_run() -> None:
    """Each gives readers its reason."""
    skipped = [block.place for block in EVERY if block.why_not_run]
    assert len(skipped) <= NOT_RUN_MAX, skipped
