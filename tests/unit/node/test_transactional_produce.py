"""Clients' transactional batches at the engine of a leader: verification, appends and markers."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.frames import read_frame, send_frame
from tests.support.lone_engine import TOPIC, lone_engine
from tests.support.waiting import wait_until

from klamm._engine.node import AckedEvent, Engine, VerifyEvent
from klamm._engine.records import encode_batch
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.partitions import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from klamm.protocol.wire.codec import read_response, write_request

PRODUCER = 7
NONE = ErrorCode.NONE


class Broker:
    """The engine, a client of it, and a transaction coordinator with responses given by the test."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.address = engine.listen(("CLIENTS", "127.0.0.1", 0, False))
        assert engine.open("CLIENTS")
        self.client = socket.create_connection(self.address, timeout=60)
        self._ids = itertools.count(1)
        self._sent: list[tuple[int, int]] = []
        self._tokens = itertools.count(1)
        self._acks: dict[int, int] = {}
        self.questions: list[VerifyEvent] = []

    def send(
        self, version: int, epoch: int, sequence: int, *, transactional: bool = True, transactional_id: str | None = "x"
    ) -> None:
        """Produce one record."""
        rows = [(1000, b"k", b"%d" % sequence)]
        batch = encode_batch(
            rows, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
        topic = TopicProduceData(
            name="t", topic_id=TOPIC, partition_data=(PartitionProduceData(index=0, records=batch),)
        )
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,), transactional_id=transactional_id)
        correlation_id = next(self._ids)
        header = struct.pack(">hhih", ApiKey.PRODUCE, version, correlation_id, -1) + (b"\0" if version >= 9 else b"")
        send_frame(self.client, header + write_request(request, version))
        self._sent.append((correlation_id, version))

    def answered(self) -> PartitionProduceResponse:
        """The oldest response that has not been read."""
        correlation_id, version = self._sent.pop(0)
        frame = read_frame(self.client)
        assert frame[:4] == struct.pack(">i", correlation_id)
        response = read_response(ProduceResponse, version, frame[5:] if version >= 9 else frame[4:])
        [topic] = response.responses
        [partition] = topic.partition_responses
        return partition

    def produce(self, version: int, epoch: int, sequence: int, code: ErrorCode | None = None) -> tuple[ErrorCode, int]:
        """Code and offset of the response; `code` is the coordinator's, None if it must not be asked."""
        self.send(version, epoch, sequence)
        if code is not None:
            self.verify(code)
        found = self.answered()
        self.drain()
        assert not self.questions
        return found.error_code, found.base_offset

    def question(self) -> VerifyEvent:
        wait_until(lambda: self.drain() or self.questions, "the coordinator is asked")
        return self.questions.pop(0)

    def verify(self, code: ErrorCode) -> VerifyEvent:
        question = self.question()
        self.engine.on_verified([(question.handle, [code])])
        return question

    def drain(self) -> None:
        for event in self.engine.drain(100):
            if isinstance(event, VerifyEvent):
                self.questions.append(event)
            elif isinstance(event, AckedEvent):
                self._acks[event.token] = event.error_code

    def end(self, epoch: int, *, commits: bool = True, version: int = 2) -> ErrorCode:
        token = next(self._tokens)
        self.engine.append_markers([(TOPIC, 0, token, None, PRODUCER, epoch, commits, 0, version)], 2000)
        wait_until(lambda: self.drain() or token in self._acks, "the marker is committed")
        return ErrorCode(self._acks[token])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with lone_engine(tmp_path) as engine:
        yield Broker(engine)


@pytest.mark.parametrize("version", [9, 10, 11, 12, 13])
def test_a_transaction_from_its_first_batch_to_its_marker(broker: Broker, version: int) -> None:
    is_adding = version >= 12
    broker.send(version, 3, 0)
    question = broker.verify(NONE)
    assert (question.transactional_id, question.producer_id, question.producer_epoch) == ("x", PRODUCER, 3)
    assert (question.is_adding, question.version, question.partitions) == (is_adding, version, [("t", 0)])
    assert broker.answered().error_code is NONE
    assert broker.produce(version, 3, 1) == (NONE, 1), "an added partition is not verified again"
    next_epoch = 4 if is_adding else 3
    assert broker.end(next_epoch, version=2 if is_adding else 0) is NONE
    assert broker.engine.producers(TOPIC, 0)[0][:2] == (PRODUCER, next_epoch)
    sequence = 0 if is_adding else 2
    assert broker.produce(version, next_epoch, sequence, NONE) == (NONE, 3)


def test_a_partition_that_was_not_added(broker: Broker) -> None:
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert broker.produce(10, 3, 0, abortable) == (ErrorCode.INVALID_TXN_STATE, -1)
    assert broker.produce(11, 3, 0, abortable) == (abortable, -1)


def test_a_marker_between_verification_and_append(broker: Broker) -> None:
    broker.send(11, 3, 0)
    question = broker.question()
    assert broker.end(3, commits=False, version=0) is NONE
    broker.engine.on_verified([(question.handle, [NONE])])
    assert broker.answered().error_code is ErrorCode.INVALID_TXN_STATE
    broker.send(12, 3, 0)
    question = broker.question()
    assert broker.end(4, commits=False) is NONE
    broker.engine.on_verified([(question.handle, [NONE])])
    assert broker.answered().error_code is ErrorCode.INVALID_PRODUCER_EPOCH
    _, rows = broker.engine.read_records(TOPIC, 0, 0, 1 << 20)
    assert [is_control for *_, is_control in rows] == [True, True], "nothing but the markers is written"


def test_a_later_batch_after_one_that_failed(broker: Broker) -> None:
    assert broker.produce(11, 3, 0, ErrorCode.NOT_COORDINATOR) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert broker.produce(11, 3, 1, NONE) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert broker.produce(11, 3, 0, NONE) == (NONE, 0)
    assert broker.produce(11, 3, 1) == (NONE, 1)


def test_a_fenced_epoch_is_not_verified(broker: Broker) -> None:
    assert broker.end(5) is NONE
    assert broker.produce(12, 4, 0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


@pytest.mark.parametrize(("version", "code"), [(12, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (11, NONE)])
def test_the_first_sequence_of_an_unknown_producer(broker: Broker, version: int, code: ErrorCode) -> None:
    assert broker.produce(version, 3, 5, NONE)[0] is code


def test_a_batch_outside_of_the_open_transaction(broker: Broker) -> None:
    assert broker.produce(12, 3, 0, NONE) == (NONE, 0)
    broker.send(12, 3, 1, transactional=False)
    assert broker.answered().error_code is ErrorCode.INVALID_TXN_STATE


def test_a_transactional_batch_needs_an_id(broker: Broker) -> None:
    broker.send(12, 3, 0, transactional_id=None)
    assert broker.answered().error_code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_batch_that_is_sent_again(broker: Broker) -> None:
    assert broker.produce(12, 3, 0, NONE) == (NONE, 0)
    assert broker.produce(12, 3, 0) == (NONE, 0)
    assert broker.end(4) is NONE
    assert broker.produce(12, 3, 0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


def test_a_batch_that_is_sent_again_after_the_marker_of_its_own_epoch(broker: Broker) -> None:
    assert broker.produce(11, 3, 0, NONE) == (NONE, 0)
    assert broker.end(3, version=0) is NONE
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert broker.produce(11, 3, 0, abortable) == (abortable, -1)
    assert broker.produce(10, 3, 0, abortable) == (ErrorCode.INVALID_TXN_STATE, -1)


def test_without_verification(tmp_path: Path) -> None:
    with lone_engine(tmp_path, {"transaction.partition.verification.enable": "false"}) as engine:
        broker = Broker(engine)
        assert broker.produce(11, 3, 0) == (NONE, 0)
        assert broker.end(3, version=0) is NONE
        assert broker.produce(12, 3, 1, ErrorCode.CONCURRENT_TRANSACTIONS) == (ErrorCode.CONCURRENT_TRANSACTIONS, -1)
        assert broker.produce(12, 3, 1, NONE) == (NONE, 2)


def test_pipelined_batches_keep_their_order(broker: Broker) -> None:
    for sequence in range(3):
        broker.send(12, 3, sequence)
    broker.verify(NONE)
    assert [(found.error_code, found.base_offset) for found in (broker.answered() for _ in range(3))] == [
        (NONE, 0),
        (NONE, 1),
        (NONE, 2),
    ]
    assert not broker.questions


def test_an_engine_that_stops_answers_waiting_requests(tmp_path: Path) -> None:
    with lone_engine(tmp_path) as engine:
        broker = Broker(engine)
        broker.send(12, 3, 0)
        broker.question()
    assert broker.answered().error_code is ErrorCode.NOT_ENOUGH_REPLICAS
