"""Runs the blocks of a page from top to bottom, as a reader would, on free ports and in a folder of its own.

- A `python` block sees the names of the blocks before it in its section. One with test functions is run by pytest.
- A `sh` block is run by bash. `klamm start` and `klamm cluster up` go on in the background until the page ends; a
  command that would go on until Ctrl-C gets Ctrl-C after it has printed something. Every command must exit with 0.
- A block with a title is written to a file of that name.
- A `text` block below is what must be printed; `...` stands for any text.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from unittest import mock

from klamm.cli.main import run as run_command
from tests.docs.pages import Block
from tests.support.ports import free_port

PORT: Final = re.compile(r"(?<=:)(?:9|19|29)\d{3}\b(?!-)")
GOES_ON: Final = re.compile(r"^klamm (?!start).*--follow")
CLUSTER_PORTS: Final = (1, 10, 11, 20, 21, 30, 31)
HERE: Final = Path(__file__).resolve().parent
SHIM: Final = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {{}} "$@"\n'


class PageRunner:
    """A folder, free ports and background processes."""

    def __init__(
        self, folder: Path, texts: Mapping[str, str] | None = None, names: Mapping[str, Any] | None = None
    ) -> None:
        """`texts` are replaced in every block, such as addresses of servers; `names` are defined in every section."""
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.texts = dict(texts or {})
        self._ports: dict[str, int] = {}
        self._section: str | None = None
        self._given = dict(names or {})
        self._names: dict[str, Any] = {}
        tools = folder / "bin"
        tools.mkdir()
        modules = {"klamm": "-m klamm", "python": ""} | {
            name: str(HERE / f"{name}.py") for name in ("in_background", "until_output")
        }
        for name, words in modules.items():
            (tools / name).write_text(SHIM.format(words))
            (tools / name).chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
            "COLUMNS": "200",
            "PAGE_PIDS": str(folder / "pids"),
        }

    def port(self, written: str | int) -> int:
        """The free port that replaces a port of the page."""
        if str(written) not in self._ports:
            self._ports[str(written)] = free_port()
        return self._ports[str(written)]

    @property
    def _default_cluster(self) -> dict[str, str]:
        """Commands without a cluster address connect to the page's localhost:9092."""
        return {"KLAMM_BOOTSTRAP": f"localhost:{self.port(9092)}"}

    def here(self, text: str) -> str:
        """The text of a block with the ports and names of this run."""
        for written, instead in self.texts.items():
            text = text.replace(written, instead)
        return PORT.sub(lambda port: str(self.port(port[0])), text)

    def run(self, block: Block, *, in_process: bool = False) -> str:
        """Run one block; returns its output."""
        if block.section != self._section:
            self._section, self._names = block.section, {"__name__": "__main__"} | self._given
        if block.title:
            (self.work / block.title).write_text(self.here(block.text))
        if block.language == "python":
            printed = self._pytest(block) if "\ndef test_" in block.text else self._python(block)
        elif block.language == "sh":
            printed = self._commands(block) if in_process else self._shell(block)
        else:
            return ""
        if block.expected is not None:
            check_output(block, printed)
        return printed

    def _python(self, block: Block) -> str:
        code = compile("\n" * block.line + self.here(block.text), block.page, "exec")
        with _inside(self.work), contextlib.redirect_stdout(io.StringIO()) as output:
            exec(code, self._names)
        return output.getvalue()

    def _pytest(self, block: Block) -> str:
        (self.work / "test_page.py").write_text(self.here(block.text))
        return self._bash(block, "python -m pytest -q -p no:cacheprovider --rootdir . test_page.py")

    def _shell(self, block: Block) -> str:
        lines = []
        for line in self.here(block.text).splitlines():
            if line.startswith(("klamm start", "klamm cluster up")):
                lines.append(f"in_background {self._start(line)}")
            else:
                lines.append(f"until_output {line}" if GOES_ON.match(line) else line)
        return self._bash(block, "\n".join(lines))

    def _start(self, line: str) -> str:
        """Start a node or a cluster without a configuration, on the port that replaces 9092."""
        words = line.partition("#")[0].rstrip(" &")
        if "cluster" in words:
            self._ports.setdefault("9092", free_port(*CLUSTER_PORTS))
        return words if ".properties" in words else f"{words} --port {self.port(9092)}"

    def _bash(self, block: Block, script: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.work,
            env=self.environment | self._default_cluster,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, f"{block.place} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _commands(self, block: Block) -> str:
        """Run klamm's commands in this process, which keeps its JVM."""
        with (
            _inside(self.work),
            mock.patch.dict(os.environ, self._default_cluster),
            contextlib.redirect_stdout(io.StringIO()) as output,
        ):
            for line in self.here(block.text).splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    assert words[0] == "klamm", f"{block.place}: not a command of klamm: {line}"
                    assert run_command(words[1:]) == 0, f"{block.place}: {line}\n{output.getvalue()}"
        return output.getvalue()

    def close(self) -> None:
        """Stop the background processes."""
        pids = self.folder / "pids"
        for pid in reversed(pids.read_text().split() if pids.exists() else []):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)


@contextlib.contextmanager
def running_page(
    folder: Path, texts: Mapping[str, str] | None = None, names: Mapping[str, Any] | None = None
) -> Iterator[PageRunner]:
    """A runner for one page."""
    runner = PageRunner(folder, texts, names)
    try:
        yield runner
    finally:
        runner.close()


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def check_output(block: Block, printed: str) -> None:
    """Compare the output with what the page shows."""
    shown = [line.rstrip() for line in (block.expected or "").strip().splitlines()]
    found = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    pattern = ".*".join(re.escape(part) for part in "\n".join(shown).split("..."))
    assert re.fullmatch(pattern, found, re.DOTALL), f"{block.place} shows\n{block.expected}\nand printed\n{found}"
