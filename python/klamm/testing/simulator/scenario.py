"""Scenario files: a description, commands, and their complete output. They document the rules of raft.

A file consists of blocks, separated by blank lines: `#` lines with a description, then one command per line, `----`,
and the output. `commands.Commands` executes those of a quorum, `brokers.scripted.BrokerCommands` those of brokers, and
both check every invariant after each step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from klamm.testing.simulator.commands import Commands


@dataclass(slots=True)
class Block:
    """One step of a scenario."""

    comments: list[str]
    commands: list[str]
    output: str


def parse(text: str) -> list[Block]:
    """The blocks of a file. Raises ValueError for a block without `----`."""
    blocks, pending = [], []
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.splitlines()
        pending += [line for line in lines if line.startswith("#")]
        rest = [line for line in lines if not line.startswith("#")]
        if not rest:
            pending.append("")
            continue
        if "----" not in rest:
            raise ValueError(f"no ---- after {rest[0]!r}")
        divider = rest.index("----")
        blocks.append(Block(pending, rest[:divider], "\n".join(rest[divider + 1 :])))
        pending = []
    return blocks


def render(blocks: list[Block]) -> str:
    """The file of these blocks."""
    return "\n\n".join("\n".join([*block.comments, *block.commands, "----", block.output]) for block in blocks) + "\n"


Run = Callable[[Sequence[str]], str]
"""Executes commands and returns their output."""


def play(text: str, run: Run | None = None) -> str:
    """The file with the current output of its commands: those of a quorum unless `run` executes others."""
    run, blocks = run or Commands().run, parse(text)
    for block in blocks:
        block.output = run(block.commands)
    return render(blocks)


def play_file(path: Path, *, rewrite: bool, run: Run | None = None) -> tuple[str, str]:
    """The content of the file and its current output; with `rewrite` the file is updated."""
    expected = path.read_text()
    actual = play(expected, run)
    if rewrite:
        path.write_text(actual)
    return expected, actual
