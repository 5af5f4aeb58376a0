from __future__ import annotations

import gc
import json
import logging
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from klamm.cli.main import run
from klamm.cli.node import process, start
from klamm.cli.terminal import logs
from klamm.config import sources
from klamm.config.node_config import NodeConfigError
from klamm.driving.deadlines import Deadlines


def test_options() -> None:
    options = start.parse(["conf", "--override", "a=1", "-o", "b=2", "--override=c=3", "--data=d", "--port", "0"])
    assert options == start.StartOptions(Path("conf"), ("a=1", "b=2", "c=3"), Path("d"), 0)
    assert start.parse([]) == start.StartOptions()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--port"], "--port needs a value"),
        (["--port", "x"], "--port x"),
        (["--port", "65536"], "65536"),
        (["--prot", "1"], "unknown option --prot"),
        (["a", "b"], "only one file is allowed"),
    ],
)
def test_a_wrong_command_line_exits_with_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["start", *arguments]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["none.properties"], "klamm: cannot read none.properties: No such file or directory"),
        (
            ["-o", "num.partitions=0"],
            "klamm: Invalid value 0 for configuration num.partitions: Value must be at least 1",
        ),
        (["-o", "listeners=SSL://localhost:1,CONTROLLER://localhost:0"], "klamm: "),
        (["-o", "klamm.log.levels=raft"], "klamm: Invalid value raft for configuration klamm.log.levels"),
    ],
)
def test_a_wrong_configuration_exits_with_1_and_no_traceback(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert (
        run(["start", "--data", str(tmp_path / "data"), *arguments] if "-o" in arguments else ["start", *arguments])
        == 1
    )
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith(complaint) for line in lines)
    assert all(line.startswith("klamm: ") for line in lines)
    assert not (tmp_path / "data").exists()


def test_starting_imports_nothing_that_serving_does_not_need() -> None:
    script = (
        "import sys, klamm.node.start; from klamm.cli.main import run; run(['start', 'none.properties'])\n"
        "dear = {'typer', 'rich', 'click', 'kio', 'pydantic', 'uuid', 'hashlib', 'klamm.protocol.wire.codec'}\n"
        "on_request = ('klamm.broker.handlers.', 'klamm.coordinator.', 'klamm.protocol.messages.topics')\n"
        "print(sorted(name for name in sys.modules if name in dear or name.startswith(on_request)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


class TestLogs:
    @pytest.fixture(autouse=True)
    def restored(self) -> object:
        root = logging.getLogger("klamm")
        before = (root.handlers, root.propagate, root.level)
        yield
        root.handlers, root.propagate = before[0], before[1]
        root.setLevel(before[2])
        logging.getLogger("klamm.raft").setLevel(logging.NOTSET)

    def configured(self, *overrides: str) -> None:
        logs.configure(sources.load(overrides=overrides))

    def test_one_line_per_event(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.configured()
        log = logging.getLogger("klamm.node")
        log.info("serving on %s", "a\nb")
        log.debug("not written")
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it failed")
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2
        assert lines[0].endswith(r"INFO  node       serving on a \n b")
        assert "ERROR node" in lines[1]
        assert "ValueError: broken" in lines[1]

    def test_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.configured("klamm.log.format=json")
        logging.getLogger("klamm.node").warning("careful: %d", 1)
        line = json.loads(capsys.readouterr().err)
        assert line.pop("time").endswith("Z")
        assert line == {"level": "WARN", "logger": "klamm.node", "message": "careful: 1"}

    def test_levels_for_the_root_and_for_packages(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.configured("klamm.log.level=error", "klamm.log.levels=klamm.raft=DEBUG")
        logging.getLogger("klamm.node").warning("not written")
        logging.getLogger("klamm.raft.driver").debug("written")
        assert capsys.readouterr().err.splitlines()[0].endswith("written")

    @pytest.mark.parametrize("levels", ["klamm.raft", "klamm.raft=LOUD"])
    def test_unknown_levels(self, levels: str) -> None:
        with pytest.raises(NodeConfigError, match="DEBUG, INFO, WARN, ERROR"):
            self.configured(f"klamm.log.levels={levels}")


OWN_PROCESS = """
import gc, sys
from klamm.cli.node import process
process.begin()
assert not gc.isenabled()
process.import_asyncio()
import asyncio, inspect
assert "ssl" not in sys.modules, "asyncio is imported without ssl"
assert "ast" not in sys.modules, "modules that are not used are not imported"
process.settle()
assert gc.isenabled()
assert gc.get_threshold() == process.COLLECTION_THRESHOLDS
assert inspect.getdoc(asyncio.run), "a lazy module is imported when it is used"
import ssl, textwrap
assert "ast" in sys.modules
assert asyncio.base_events.ssl is None
assert ssl.OPENSSL_VERSION, "other code can import ssl"
assert textwrap.shorten("a b c", 5) == "a b c"

async def serve():
    process.serve()

assert gc.callbacks == []
asyncio.run(serve())
frozen = gc.get_freeze_count()
alive = [[] for _ in range(1_000)]
gc.collect(1)
assert gc.get_freeze_count() >= frozen + 1_000, "what a served node keeps is frozen"
"""


def test_the_process_starts_without_garbage_collector_and_openssl() -> None:
    done = subprocess.run([sys.executable, "-c", OWN_PROCESS], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


class Loop:
    """The deadlines of an event loop, which come when a test says so."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def add(self, after_ms: float, callback: Callable[[], None]) -> None:
        assert after_ms == process.LOOK_MS
        self.callbacks.append(callback)

    def look(self) -> None:
        self.callbacks.pop()()


class Cyclic:
    """Garbage that only a collection removes."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop whose full collections follow the collector of this process; only the test begins a collection."""
    loop, callbacks = Loop(), list(gc.callbacks)
    gc.disable()
    gc.collect()
    process.FullCollections(cast("Deadlines", loop)).start()
    yield loop
    gc.callbacks[:] = callbacks
    gc.unfreeze()
    gc.enable()


def collect(times: int) -> None:
    """The collector's second generation becomes due that often."""
    for _ in range(times):
        gc.collect(1)


def test_old_garbage_is_collected_while_the_loop_is_quiet(loop: Loop) -> None:
    old = Cyclic()
    gone = weakref.ref(old)
    collect(1)
    del old
    gc.collect()
    assert gone() is not None, "it is frozen"
    collect(process.COLLECTIONS_BEFORE_FULL)
    loop.look()
    assert gone() is not None, "the loop has worked"
    collect(process.QUIET_MAX)
    loop.look()
    assert gone() is None
    assert gc.get_freeze_count() > 0, "what is left is frozen again"


def test_little_garbage_of_a_quiet_loop_stays(loop: Loop) -> None:
    old = Cyclic()
    gone = weakref.ref(old)
    collect(process.QUIET_MAX)
    del old
    for _ in range(3):
        loop.look()
    assert gone() is not None


def test_after_a_full_collection_the_next_one_waits_as_long(loop: Loop) -> None:
    collect(process.COLLECTIONS_BEFORE_FULL)
    loop.look()
    loop.look()
    old = Cyclic()
    gone = weakref.ref(old)
    collect(process.QUIET_MAX)
    del old
    loop.look()
    assert gone() is not None


def test_full_collections_that_find_little_become_rare(loop: Loop) -> None:
    def collects(garbage: int) -> bool:
        """Whether a full collection follows as many collections as at first."""
        old = [Cyclic() for _ in range(garbage)]
        gone = weakref.ref(old[0])
        collect(process.COLLECTIONS_BEFORE_FULL)
        old.clear()
        loop.look()
        loop.look()
        return gone() is None

    assert [collects(1) for _ in range(7)] == [True, False, True, False, False, False, True]
    assert [collects(process.WORTH_IT) for _ in range(10)] == [False] * 7 + [True] * 3


def test_old_garbage_of_a_busy_loop_is_collected_in_the_end(loop: Loop) -> None:
    old = Cyclic()
    gone = weakref.ref(old)
    collect(1)
    del old
    collect(process.COLLECTIONS_MAX - 2)
    loop.look()
    assert gone() is not None
    collect(process.QUIET_MAX + 1)
    loop.look()
    assert gone() is None


def test_signals_during_the_start_are_kept_for_the_node() -> None:
    before = signal.getsignal(signal.SIGTERM)
    calls: list[str] = []
    signals = process.StopSignals()
    signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before, "the second one is not ours"
    signals.on_stop(lambda: calls.append("early"))
    assert calls == ["early"]

    signals = process.StopSignals()
    signals.on_stop(lambda: calls.append("late"))
    assert calls == ["early"]
    signal.raise_signal(signal.SIGINT)
    assert calls == ["early", "late"]
    assert signal.getsignal(signal.SIGTERM) is before
