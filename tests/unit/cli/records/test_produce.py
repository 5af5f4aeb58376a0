"""`klamm produce` and Ctrl-C before a broker has responded."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.unit.cli.fake_broker import FakeBroker

from klamm import records
from klamm.cli.main import INTERRUPTED, run
from klamm.cli.terminal.interrupts import SecondInterrupt, held
from klamm.client.connection import parse_bootstrap


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


class Broker(FakeBroker):
    """Has one topic, `t`. When it has a batch, Ctrl-C is pressed `presses` times, and then it responds or not."""

    def __init__(self, presses: int, *, answers: bool = True) -> None:
        self.presses, self.answers = presses, answers
        self.written = 0
        self.may_answer = threading.Event()
        super().__init__({3: (12, 12, self.metadata), 0: (9, 9, self.produce)})

    def metadata(self, request: object, version: int) -> dict[str, object]:
        host, port = parse_bootstrap(self.address)[0]
        partition = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
        return {
            "brokers": [{"node_id": 1, "host": host, "port": port}],
            "topics": [{"error_code": 0, "name": "t", "partitions": [partition]}],
        }

    def produce(self, request: object, version: int) -> dict[str, object]:
        batch = request.topic_data[0].partition_data[0].records  # type: ignore[attr-defined]
        self.written += len(records.decode(bytes(batch)))
        for _ in range(self.presses):
            # To the main thread, which handles signals while it waits; as far apart as key presses.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            self.may_answer.wait(0.3)
        self.presses = 0
        if not self.answers:
            self.may_answer.wait(60)
        partition = {"index": 0, "error_code": 0, "base_offset": 0}
        return {"responses": [{"name": "t", "partition_responses": [partition]}]}


def produced(broker: Broker, monkeypatch: pytest.MonkeyPatch, stdin: bytes) -> int:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    try:
        return run(["produce", "t", "--bootstrap", broker.address])
    finally:
        broker.may_answer.set()


@pytest.mark.parametrize("lines", [3, 20_000])
def test_after_ctrl_c_a_pending_batch_is_awaited_and_counted(
    lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(presses=1) as broker:
        assert produced(broker, monkeypatch, b"typed\n" * lines) == INTERRUPTED
    errors = capsys.readouterr().err
    assert 3 <= broker.written < 20_000
    assert errors == f"{broker.written} records written to t\n"


def test_a_second_ctrl_c_stops_waiting_for_a_silent_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(presses=2, answers=False) as broker:
        assert produced(broker, monkeypatch, b"typed\n" * 3) == INTERRUPTED
    assert capsys.readouterr().err == "whether 3 more were written is not known: the broker did not answer\n"


def pressed(times: int, done: list[str]) -> None:
    with held():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        done.append("to its end")


def test_ctrl_c_is_delivered_after_the_protected_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt) as raised:
        pressed(1, done)
    assert (done, raised.type) == (["to its end"], KeyboardInterrupt)
    with pytest.raises(SecondInterrupt):
        pressed(2, done)
    assert done == ["to its end"]


def test_other_exceptions_are_unaffected() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held():
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)
    came: list[BaseException | None] = []

    def elsewhere() -> None:
        with held():
            came.append(None)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(10)
    assert came == [None]
