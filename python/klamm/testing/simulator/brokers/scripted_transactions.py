"""The commands of a scenario for transactional batches and markers. The script decides what a coordinator would."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm._engine.records import encode_batch, record_batches
from klamm.protocol.errors import ErrorCode
from klamm.testing.simulator.brokers.replication import TransactionalBatch
from klamm.testing.simulator.brokers.verdicts import filtered
from klamm.testing.simulator.brokers.world import TOPIC

if TYPE_CHECKING:
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.scripted_world import ScriptedWorld


class TransactionalCommands:
    """Partition 0 of one topic is all there is. A producer is written as its id and epoch, such as 7/3."""

    def __init__(self, world: Callable[[], ScriptedWorld], note: Callable[[str], None]) -> None:
        self._world, self._note = world, note
        self._accept: Callable[[], None] | None = None
        self.commands: dict[str, Callable[[list[str]], None]] = {
            "verify": self._verify,
            "accept": self._accept_batch,
            "produce-in": self._produce_in,
            "marker": self._marker,
            "consume-committed": self._consume_committed,
        }

    def _broker(self, arguments: list[str]) -> Broker:
        return self._world().brokers[int(arguments[0])]

    def _verify(self, arguments: list[str]) -> None:
        """`verify 1 7/3 [sequence=0] [adding=no]`: a batch arrives, and its coordinator is asked if it must be."""
        broker, producer = self._broker(arguments), _producer(arguments[1])
        options = dict(argument.split("=") for argument in arguments[2:])
        sequence = int(options.get("sequence", 0))
        content = encode_batch(
            [(broker.now_ms, None, b"%d/%d.%d" % (*producer, sequence))],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        is_adding = options.get("adding", "yes") == "yes"
        batch = TransactionalBatch(content, "x", (*producer, sequence), (TOPIC, 0), is_adding)

        def ask(batch: TransactionalBatch, verified: Callable[[int], None]) -> None:
            self._note("the coordinator is asked")
            self._accept = broker.while_alive(lambda: verified(0))

        def reply(answer: tuple[int, int]) -> None:
            self._note_answer("batch", answer[0])

        key = self._world().keys[0]
        broker.while_alive(lambda: broker.replication.on_transactional_produce(key, batch, ask, reply))()

    def _accept_batch(self, arguments: list[str]) -> None:
        """`accept`: the coordinator accepts the batch of the last `verify`."""
        accept, self._accept = self._accept, None
        if accept is not None:
            accept()

    def _produce_in(self, arguments: list[str]) -> None:
        """`produce-in 1 7/3 [sequence=0]`: both."""
        self._verify(arguments)
        self._accept_batch([])

    def _marker(self, arguments: list[str]) -> None:
        """`marker 1 7/3 commit [coordinator=0] [version=2]`, or `abort`."""
        broker, producer = self._broker(arguments), _producer(arguments[1])
        options = dict(argument.split("=") for argument in arguments[3:])
        coordinator, version = int(options.get("coordinator", 0)), int(options.get("version", 2))
        marker = (*producer, arguments[2] == "commit", coordinator, version)
        key = self._world().keys[0]

        def append(ticket: int) -> tuple[int, int]:
            return broker.engine.append_marker(key, marker, True, None, ticket, broker.now_ms)

        def done(code: int) -> None:
            self._note_answer("marker", code)

        broker.while_alive(lambda: broker.replication.append_own(append, done, key))()

    def _note_answer(self, name: str, code: int) -> None:
        self._note(f"{name}: {ErrorCode(code).name if code else 'acknowledged'}")

    def _consume_committed(self, arguments: list[str]) -> None:
        """`consume-committed 1 [from=0]`: what a consumer of broker 1 receives of committed transactions."""
        options = dict(argument.split("=") for argument in arguments[1:])
        broker, offset = self._broker(arguments), int(options.get("from", 0))
        key = self._world().keys[0]
        code, stable, data, aborted = broker.engine.consume_committed(key, offset, broker.now_ms)
        if code:
            self._note(ErrorCode(code).name)
            return
        received, skipped = filtered(list(record_batches(data)), aborted)
        texts = [", ".join(str(batch.base_offset) for batch in batches) or "none" for batches in (received, skipped)]
        self._note(f"receives {texts[0]}, skips {texts[1]}, last stable offset {stable}")


def _producer(text: str) -> tuple[int, int]:
    producer_id, epoch = text.split("/")
    return int(producer_id), int(epoch)
