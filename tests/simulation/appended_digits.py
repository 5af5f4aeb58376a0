"""A coordinator's shard on a simulated broker, whose appends are refused while others are in flight."""

import random
from functools import partial

from klamm.coordinator.runtime.driver import CoordinatorRuntime
from klamm.coordinator.runtime.log import Marker, Producer
from klamm.coordinator.runtime.pipeline import Pipeline
from klamm.coordinator.runtime.timers import Timers
from klamm.node.coordinators.appends import Appends
from klamm.node.views.coordinator_log import EngineCoordinatorLog
from klamm.protocol.errors import ErrorCode
from klamm.testing.simulator.brokers.coordinator_engine import CoordinatorEngine
from klamm.testing.simulator.brokers.faults import BrokerFaults
from klamm.testing.simulator.brokers.run import SETTINGS
from klamm.testing.simulator.brokers.world import BrokerWorld, ClusterPlan
from klamm.testing.simulator.replica_loop import new_loop

SECOND_US = 1_000_000
WRITE_S = 0.002


class DigitsShard:
    """The digits of its records, in the order of the log; a marker is a dot."""

    def __init__(self):
        self.digits = ""
        self.pipeline = Pipeline(5_000, 1_000, lambda: self.digits)
        self.timers = Timers()

    def replay(self, record):
        self.digits += "." if record.is_control else record.value.decode()

    def rollback(self, snapshot):
        self.digits = snapshot

    def on_loaded(self, now_ms):
        return self.pipeline.take_effects()

    on_unloaded = on_loaded

    def on_digit(self, now_ms, ticket, digit, producer=None):
        self.pipeline.write([(digit.encode(), digit.encode())], producer=producer)
        self.digits += digit
        return self._replied(now_ms, ticket)

    def on_marker(self, now_ms, ticket, producer):
        self.pipeline.write_marker(Marker(producer, True, 0, 2))
        self.digits += "."
        return self._replied(now_ms, ticket)

    def _replied(self, now_ms, ticket):
        self.pipeline.reply_when_committed(now_ms, ticket, ErrorCode.NONE, None, lambda _, error: error)
        return self.pipeline.take_effects()


class AppendedDigits:
    """One broker with one shard."""

    def __init__(self, folder, without=None):
        plan = ClusterPlan(1, 1, 1, 1, False, SETTINGS, {"metadata.version": 30}, without=without)
        self._world = BrokerWorld(random.Random(1), BrokerFaults(), folder, plan)
        self._world.begin()
        self._world.run(self._world.now_us + SECOND_US)
        broker = self._broker = self._world.brokers[1]
        self._topic_id, self.partition = self._world.keys[0]
        [found] = broker.image.partitions(self._topic_id)
        self.leader_epoch = found.leader_epoch
        self._loop = new_loop(lambda: broker.now_ms)
        self.answers = {}
        self._loop.run(self._make)

    def _make(self):
        appends = Appends()
        engine = CoordinatorEngine(self._broker, appends, lambda: None, lambda: None, lambda: WRITE_S)
        log = EngineCoordinatorLog(
            engine, "digits", lambda: self._topic_id, appends, codec=0, load_bytes=1_000, is_compacted=False
        )
        self.runtime = CoordinatorRuntime(log, DigitsShard)

    def load(self, leader_epoch):
        """The shard is loaded, as in this epoch."""
        self._loop.run(partial(self.runtime.on_elected, self.partition, leader_epoch))
        self.pass_time()

    def write(self, *digits):
        """Write digits in one turn of the loop; one with an epoch is a batch of a transaction, a dot its marker."""
        self._loop.run(lambda: [self._write(*digit) for digit in digits])

    def _write(self, digit, epoch=None):
        hosted = self.runtime.shards.active(self.partition)
        producer = None if epoch is None else Producer(7, epoch)
        shard = hosted.shard
        event = (
            partial(shard.on_marker, producer=producer)
            if digit == "."
            else partial(shard.on_digit, digit=digit, producer=producer)
        )
        self.runtime.submit(hosted, partial(self.answers.__setitem__, digit), lambda error: error, event)

    def pass_time(self, turns=300):
        for _ in range(turns):
            self._world.run(self._world.now_us + 1_000)
            self._loop.run(lambda: None)

    @property
    def digits(self):
        """Of the shard."""
        return self.runtime.shards.active(self.partition).shard.digits

    def end(self):
        self._broker.engine.kill()
        self._loop.forget()


def refused_in_flight(folder, without):
    """The second of several appends in flight is refused: the answers, and the digits in memory and in the log."""
    played = AppendedDigits(folder, without)
    played.load(played.leader_epoch)
    played.write(("1",), ("2", 1))
    played.pass_time()
    played.write(("3",), ("4", 0), (".", 2), ("5",), ("6", 1), ("7",), ("8", 1))
    played.pass_time()
    played.write(("9",))
    played.pass_time()
    digits = [played.digits]
    played.load(played.leader_epoch + 1)
    outcome = played.answers, [*digits, played.digits], played.runtime.counts.faults
    played.end()
    return outcome


def appended_in_an_earlier_epoch(folder, without):
    """A shard of an earlier leader epoch appends: the answer, and the digits in the log."""
    played = AppendedDigits(folder, without)
    played.load(played.leader_epoch - 1)
    played.write(("1",))
    played.pass_time()
    played.load(played.leader_epoch)
    outcome = played.answers, played.digits
    played.end()
    return outcome
