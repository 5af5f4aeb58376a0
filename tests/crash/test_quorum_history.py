"""Controllers are killed, frozen, stopped and restarted under load: the history that their clients saw is linearizable.

Producer ids are a counter. Each response is a unique block of ids, above every block that was returned before its
request; a counter whose increments may be lost is linearizable exactly if this holds. Each config is written once; the
acknowledged ones exist at the end on every controller.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from klamm.client import ClientError
from klamm.client.connection import Connection
from klamm.protocol.errors import ErrorCode
from klamm.protocol.features import SUPPORTED_FEATURES
from klamm.protocol.messages import registration as messages
from tests.support import controller_processes
from tests.support.controller_processes import BOUND_S, Quorum
from tests.support.waiting import wait_until

BROKER = 100
FROZEN_S = 3.5  # longer than a leader keeps leading without a majority, and longer than a follower waits for one
ANSWERS_BETWEEN = 60


class Block(NamedTuple):
    """The first id of a block, and the times of request and response."""

    start: int
    begun: float
    ended: float


class Load:
    """Clients that send requests continuously to any leader."""

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.blocks: list[Block] = []
        self.written: dict[str, int] = {}
        self.faults: list[str] = []
        self._request = messages.AllocateProducerIdsRequest(BROKER, self._register())
        self._values = itertools.count(1)
        self._is_over = threading.Event()
        asks = (self._allocate, self._allocate, self._allocate, self._write, self._write)
        self._threads = [threading.Thread(target=self._ask_all_the_time, args=(ask,)) for ask in asks]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def wait_for_answers(self) -> None:
        """Wait until there are more responses of both kinds."""
        blocks, written = len(self.blocks) + ANSWERS_BETWEEN, len(self.written) + ANSWERS_BETWEEN

        def are_given() -> bool:
            assert not self.faults
            return len(self.blocks) >= blocks and len(self.written) >= written

        wait_until(are_given, lambda: "answers\n" + "\n".join(self.quorum.logs()), bound_s=BOUND_S)

    def _register(self) -> int:
        features = SUPPORTED_FEATURES.items()
        request = messages.BrokerRegistrationRequest(
            BROKER,
            self.quorum.cluster_id,
            bytes(range(16)),
            (messages.Listener("PLAINTEXT", "localhost", 9092),),
            tuple(messages.SupportedFeature(name, found.min_version, found.max_version) for name, found in features),
            log_dirs=(bytes(range(16, 32)),),
        )
        while True:  # the leader may not be active yet
            with Connection("127.0.0.1", self.quorum.leader()[0].port) as connection:
                answer = connection.ask(request, messages.BrokerRegistrationResponse, 4)
            if answer.error_code is ErrorCode.NONE:
                return answer.broker_epoch
            assert answer.error_code is ErrorCode.NOT_CONTROLLER

    def _allocate(self, connection: Connection) -> bool:
        begun = time.monotonic()
        answer = connection.ask(self._request, messages.AllocateProducerIdsResponse, 0)
        if answer.error_code is ErrorCode.NONE:
            self.blocks.append(Block(answer.producer_id_start, begun, time.monotonic()))
        return answer.error_code is ErrorCode.NONE

    def _write(self, connection: Connection) -> bool:
        value = next(self._values)
        is_acknowledged = controller_processes.write(connection, f"value-{value}", 1000 + value)
        if is_acknowledged:
            self.written[f"value-{value}"] = 1000 + value
        return is_acknowledged

    def _ask_all_the_time(self, ask: Callable[[Connection], bool]) -> None:
        for controller in itertools.cycle(self.quorum.controllers.values()):
            if self._is_over.is_set():
                return
            try:
                with Connection("127.0.0.1", controller.port, 5) as connection:
                    while not self._is_over.is_set() and ask(connection):
                        pass
            except ClientError:
                time.sleep(0.01)
            except Exception as error:  # fails the test instead of this thread
                self.faults.append(repr(error))
                return


def is_counter(blocks: list[Block]) -> bool:
    """Whether every block is unique, and above all that were returned before its request."""
    highest_ended: list[tuple[float, int]] = []
    for end, start in sorted((block.ended, block.start) for block in blocks):
        highest_ended.append((end, max(start, highest_ended[-1][1] if highest_ended else -1)))
    position, highest = 0, -1
    for block in sorted(blocks, key=lambda block: block.begun):
        while position < len(highest_ended) and highest_ended[position][0] < block.begun:
            highest = highest_ended[position][1]
            position += 1
        if block.start <= highest:
            return False
    return len({block.start for block in blocks}) == len(blocks)


def test_the_checker_detects_violations() -> None:
    assert is_counter([Block(0, 0, 1), Block(2000, 2, 5), Block(1000, 3, 4), Block(3000, 6, 7)])
    assert not is_counter([Block(0, 0, 1), Block(2000, 2, 3), Block(1000, 4, 5)])
    assert not is_counter([Block(0, 0, 1), Block(0, 0, 2)])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_histories_of_killed_controllers(tmp_path: Path) -> None:
    rng = random.Random(f"{time.time_ns()}")
    with controller_processes.running(tmp_path) as quorum, Load(quorum) as load:
        for _ in range(20):
            load.wait_for_answers()
            leader, _ = quorum.leader()
            victim = rng.choice([leader, leader, *quorum.controllers.values()])
            match rng.choice(["kill", "freeze", "stop"]):
                case "kill":
                    victim.kill()
                    load.wait_for_answers()
                    victim.start()
                case "freeze":
                    os.kill(victim.pid, signal.SIGSTOP)
                    time.sleep(FROZEN_S)
                    os.kill(victim.pid, signal.SIGCONT)
                case "stop":
                    assert victim.stop() == 0
                    load.wait_for_answers()
                    victim.start()
        load.wait_for_answers()
        load.__exit__()
        assert load.faults == []
        assert is_counter(load.blocks)
        for node_id in quorum.controllers:
            quorum.wait_for(node_id, load.written)
