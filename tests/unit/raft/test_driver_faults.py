"""An exception in each call that the driver makes, one at a time: the replica continues, and logs it once."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.raft.test_driver import Rig
from tests.unit.raft.test_three_drivers import Member, Switch, leader_of

from klamm.raft.driver import RaftDriver, delivery
from klamm.raft.driver.delivery import Delivery
from klamm.raft.log.metadata_log import MetadataLogError, OffsetAndEpoch
from klamm.raft.log.snapshots import SnapshotConfig
from klamm.raft.ports import Listener, NotLeaderError, RaftStoppedError, StateFailedError

INJECTED = "injected for the test"
SNAPSHOT = OffsetAndEpoch(7, 2)


class InjectedError(Exception):
    """What a test lets happen."""


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FIRST_PAUSE_MS", 1)


def fail_once(owner: Any, name: str) -> asyncio.Event:
    """Make the next call raise; the event is set when it has."""
    found, raised = getattr(owner, name), asyncio.Event()

    def inject(*args: Any, **kwargs: Any) -> Any:
        if raised.is_set():
            return found(*args, **kwargs)
        raised.set()
        raise InjectedError(INJECTED)

    setattr(owner, name, inject)
    return raised


def errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


def assert_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    [error] = errors(caplog)
    assert error.exc_info
    assert isinstance(error.exc_info[1], InjectedError)


async def commit(rig: Any) -> None:
    """A record that is committed by a replica leading any epoch."""
    async with asyncio.timeout(30):
        while True:
            rig.listener.leading.clear()
            try:
                await rig.driver.wait_committed(rig.driver.propose([b"x" * 100], rig.driver.epoch))
                return
            except NotLeaderError:
                await rig.listener.leading.wait()


def heard(rig: Any, kind: str) -> list[Any]:
    return [what for each, what in rig.listener.heard if each == kind]


async def commit_reaches(rig: Any) -> None:
    before = len(heard(rig, "commit"))
    await commit(rig)
    await until(lambda: heard(rig, "commit")[before:][-1:] == [rig.driver.high_watermark])


async def lose_leadership(rig: Any) -> None:
    rig.driver.resign(rig.driver.epoch)
    await commit(rig)


# How each call of a listener is caused; tests for installed snapshots are below. A new call has to be added.
REACH: dict[str, Callable[[Any], Any]] = {
    "on_commit": commit_reaches,
    "on_leader": lose_leadership,
    "on_not_leader": lose_leadership,
    "write_snapshot": commit,
}
OTHERS = {"on_snapshot_installed", "load_snapshot", "on_fault"}


def test_every_call_of_a_listener_is_listed() -> None:
    public = {name for name in vars(Listener) if not name.startswith("_")}
    assert public == REACH.keys() | OTHERS
    assert public <= vars(Delivery).keys(), "the driver calls its listener by way of Delivery"


def test_every_callback_of_the_driver_is_known() -> None:
    """A new callback has to be guarded, and tested here."""
    parameters = inspect.signature(RaftDriver.__init__).parameters
    callbacks = {name for name in parameters if name not in ("self", "node", "log", "store", "listener")}
    assert callbacks == {
        "transport",
        "open_streams",
        "open_answers",
        "snapshot_config",
        "wall_clock_ms",
        "on_leader_change",
        "start_thread",
    }


async def test_without_a_thread_to_write_quorum_state_the_replica_stops(tmp_path: Path) -> None:
    def start_thread(run: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    rig = Rig(tmp_path, start_thread=start_thread)
    with pytest.raises(MetadataLogError, match=r"cannot write .*quorum-state: can't start new thread"):
        rig.driver.start()


@pytest.mark.parametrize("name", sorted(REACH))
async def test_a_call_of_the_listener_fails(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = await Rig(tmp_path, snapshot_config=SnapshotConfig(record_bytes_between_snapshots_max=10_000)).start()
    raised = fail_once(rig.listener, name)
    if name == "write_snapshot":
        for _ in range(110):
            await commit(rig)
    async with asyncio.timeout(30):
        await REACH[name](rig)
        await raised.wait()
    await commit(rig)
    assert heard(rig, "fault") == []
    assert_logged_once(caplog)
    commits = heard(rig, "commit")
    assert commits == sorted(commits)
    if name == "on_leader":
        assert rig.driver.epoch >= 3, "an epoch that the listener cannot lead is resigned"
    if name == "write_snapshot":
        async with asyncio.timeout(30):
            while not heard(rig, "snapshot"):
                await commit(rig)
    await rig.driver.close()


async def test_a_commit_that_keeps_failing_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = await Rig(tmp_path).start()
    calls = []

    def broken(high_watermark: int) -> None:
        calls.append(high_watermark)
        raise InjectedError(INJECTED)

    works, rig.listener.on_commit = rig.listener.on_commit, broken
    async with asyncio.timeout(30):
        while len(calls) < 5:
            await commit(rig)
            await asyncio.sleep(0.001)
    assert_logged_once(caplog)
    rig.listener.on_commit = works
    await until(lambda: heard(rig, "commit")[-1:] == [rig.driver.high_watermark])
    await rig.driver.close()


async def test_a_leader_that_cannot_apply_what_was_committed_resigns(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    calls = []

    def broken(high_watermark: int) -> None:
        calls.append(high_watermark)
        if rig.driver.epoch < 3:
            raise InjectedError(INJECTED)

    rig.listener.on_commit = broken  # type: ignore[method-assign]
    await rig.start()
    assert rig.driver.epoch >= 3
    assert heard(rig, "leader") == [rig.driver.epoch], "it was not notified of earlier epochs"
    await rig.driver.close()


async def test_no_snapshot_is_written_of_what_could_not_be_applied(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, snapshot_config=SnapshotConfig(record_bytes_between_snapshots_max=10)).start()

    def broken(high_watermark: int) -> None:
        raise InjectedError(INJECTED)

    async with asyncio.timeout(30):
        await commit(rig)
        await rig.listener.snapshot_written.wait()
        written = heard(rig, "snapshot")
        rig.listener.on_commit = broken  # type: ignore[method-assign]
        for _ in range(5):
            await commit(rig)
    assert heard(rig, "snapshot")[len(written) + 1 :] == [], "one may have been under way"
    await rig.driver.close()


async def test_a_failing_listener_of_faults_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = await Rig(tmp_path).start()
    fail_once(rig.listener, "on_fault")
    rig.driver.fail(MetadataLogError("the disk is gone"))
    assert [record.message for record in errors(caplog)] == [
        "replica 1 stops: the disk is gone",
        "the listener failed when the replica stopped",
    ]
    with pytest.raises(RaftStoppedError, match="the disk is gone"):
        rig.driver.propose([b"x"], 1)
    await rig.driver.close()


@pytest.mark.parametrize("error", [MetadataLogError("it"), RaftStoppedError("it"), StateFailedError("it")])
@pytest.mark.parametrize("name", ["on_commit", "on_leader", "on_not_leader", "write_snapshot"])
async def test_exceptions_that_shall_stop_the_replica_stop_it(name: str, error: Exception, tmp_path: Path) -> None:
    rig = await Rig(tmp_path, snapshot_config=SnapshotConfig(record_bytes_between_snapshots_max=10)).start()

    def stop(*_: Any) -> None:
        raise error

    setattr(rig.listener, name, stop)
    rig.driver.propose([b"x" * 100], 1)
    if name in ("on_leader", "on_not_leader"):
        rig.driver.resign(1)
    async with asyncio.timeout(30):
        await rig.listener.faulted.wait()
    assert heard(rig, "fault") == ["it"]
    await rig.driver.close()


async def test_a_failing_listener_of_leader_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    epochs = []

    def tell(leader_id: int | None, epoch: int) -> None:
        epochs.append(epoch)
        if len(epochs) == 1:
            raise InjectedError(INJECTED)

    rig = await Rig(tmp_path, on_leader_change=tell).start()
    await commit(rig)
    assert_logged_once(caplog)
    assert heard(rig, "fault") == []
    await rig.driver.close()


@pytest.mark.parametrize("broken", ["send", "reply"])
async def test_an_exchange_with_a_peer_fails(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    switch = Switch()
    members = [Member(node_id, switch) for node_id in (1, 2, 3)]
    for member in members:
        member.driver.start()
    async with asyncio.timeout(60):
        leader = await leader_of(members)
        await leader.driver.wait_committed(leader.driver.propose([b"first"], leader.driver.epoch))
        raised = fail_once(switch, "send") if broken == "send" else break_one_reply(leader.driver)
        for number in range(20):
            await leader.driver.wait_committed(leader.driver.propose([b"%d" % number], leader.driver.epoch))
        await raised.wait()
    assert_logged_once(caplog)
    for member in members:
        assert member.faults == []
        await member.driver.close(timeout_ms=100)


def break_one_reply(driver: RaftDriver) -> asyncio.Event:
    """The next response to a peer raises; the peer gets none, as if its connection was closed."""
    handle, raised = driver.handle_request, asyncio.Event()

    def handle_request(request: Any, reply: Any) -> None:
        def broken(response: Any, read: Any) -> None:
            if raised.is_set():
                reply(response, read)
                return
            raised.set()
            asyncio.get_running_loop().call_soon(reply, None, None)
            raise InjectedError(INJECTED)

        handle(request, broken)

    driver.handle_request = handle_request  # type: ignore[method-assign]
    return raised


# The order of calls of a listener


class Snapshots:
    """A listener that fails a given number of times."""

    def __init__(self, failures: dict[str, int]) -> None:
        self.failures, self.heard = failures, list[tuple[str, Any]]()

    def _hear(self, name: str, what: Any) -> None:
        if self.failures.get(name, 0) > 0:
            self.failures[name] -= 1
            raise InjectedError(f"{name} {self.failures[name]}")
        self.heard.append((name, what))

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self._hear(name, *args)


@pytest.mark.parametrize("name", ["on_snapshot_installed", "on_commit"])
async def test_a_commit_waits_for_the_snapshot_before_it(name: str) -> None:
    listener, resigned = Snapshots({name: 3}), list[int]()
    made = Delivery(listener, resigned.append, lambda error: None)  # type: ignore[arg-type]
    made.on_snapshot_installed(SNAPSHOT)
    made.on_commit(8)
    made.on_commit(9)
    made.on_leader(5)
    assert resigned == [5]
    await until(lambda: not made.is_behind)
    made.on_leader(6)
    assert listener.heard == [("on_snapshot_installed", SNAPSHOT), ("on_commit", 9), ("on_leader", 6)]
    assert resigned == [5]
    made.close()


async def test_a_repeated_delivery_may_stop_the_replica() -> None:
    listener, stopped = Snapshots({"on_commit": 1}), asyncio.Event()
    made = Delivery(listener, lambda epoch: None, lambda error: stopped.set())  # type: ignore[arg-type]
    made.on_commit(8)

    def stop(offset: int) -> None:
        raise StateFailedError("it")

    listener.on_commit = stop  # type: ignore[attr-defined]
    async with asyncio.timeout(30):
        await stopped.wait()
