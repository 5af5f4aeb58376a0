"""Transactional producers, the product's transaction coordinators, and what isolation promises to consumers.

Invariants, sources KIP-98, KIP-890 and KIP-1228:

1. A consumer that reads committed records receives none of a transaction whose producer did not ask for a commit, or
   was fenced before.
2. A transaction is committed in all of its partitions or in none, as its producer was answered.
3. A consumer receives each acknowledged batch of a committed transaction once.
4. The last stable offset of a leader does not move back in one leader epoch of one life.
5. No coordinator fails on a request, and the state of each is what its log says.
6. No transaction stays open once faults stop.

An unclean election and a power cut without flushes may lose records, so a partition that had one promises nothing, and
no transaction does if the coordinators' log had one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm._engine.records import record_batches
from klamm.node.groups import GROUPS_TOPIC
from klamm.node.transactions import TRANSACTIONS_TOPIC
from klamm.testing.simulator.brokers.folding import check_transaction_state, has_open_transactions
from klamm.testing.simulator.brokers.group_folding import check_group_state
from klamm.testing.simulator.brokers.network import Reply, Request
from klamm.testing.simulator.brokers.transactional_offsets import TransactionalOffsets, group_of
from klamm.testing.simulator.brokers.transactional_producer import TIMEOUT_US, VERSION_2, TransactionalProducer
from klamm.testing.simulator.brokers.verdicts import Verdicts, filtered, text_of
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.metadata import PartitionInfo
    from klamm._engine.records import RecordBatch
    from klamm.protocol.messages.transactions import Pair
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.history import Key, PartitionHistory
    from klamm.testing.simulator.brokers.scene import Scene
    from klamm.testing.simulator.brokers.verdicts import Transaction

CLIENT: Final = -2
IDS: Final = 3
REPLACED_CHANCE: Final = 0.2
LOOK_US: Final = 100_000


class Transactions:
    """All transactional producers, and what consumers see of them."""

    id = CLIENT

    def __init__(
        self,
        scene: Scene,
        topic: str,
        brokers: dict[int, Broker],
        histories: dict[Key, PartitionHistory],
        *,
        version: int,
    ) -> None:
        """`version` is the level of transaction.version."""
        self._scene, self.topic, self._brokers, self._histories = scene, topic, brokers, histories
        self._version = version
        self._producers: dict[str, list[TransactionalProducer]] = {}
        """The instances by transactional id, the newest last."""
        for number in range(IDS):
            name = f"x{number}"
            self._producers[name] = [self._new_producer(name, number)]
        self._verdicts = Verdicts()
        self.offsets = TransactionalOffsets(
            scene, topic, brokers, [*map(group_of, self._producers)], self._promises_offsets
        )
        self._topic_ids: set[bytes | None] = set()
        """The first topics of their names."""
        self._counts = dict.fromkeys(self._producers, 0)
        self._newest: dict[tuple[str, int], int] = {}
        """The newest epoch of an answer, by transactional id and producer id."""
        self._stable: dict[tuple[int, int, int, Key], int] = {}
        self._is_stopped = self._commits_offsets = False
        self._look_again_us = 0

    def _new_producer(self, name: str, number: int) -> TransactionalProducer:
        is_new = self._version >= VERSION_2 and number % 3
        return TransactionalProducer(self._scene, self, name, VERSION_2 if is_new else 0)

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """They always live."""
        return act

    def begin(self) -> None:
        """Let producers and consumers work from now on."""
        every_us = self._scene.faults.transact_every_us
        image = self._scene.controller.image
        self._topic_ids = {image.topic_id(topic) for topic in (self.topic, TRANSACTIONS_TOPIC, GROUPS_TOPIC)}
        self._commits_offsets = self._scene.faults.commit_offsets_chance > 0
        self._scene.every(lambda: 0 if self._is_stopped else every_us // IDS, self._work)
        self._scene.every(lambda: 0 if self._is_stopped else 3 * every_us, self._consume)
        if self._commits_offsets:
            self._scene.every(lambda: 0 if self._is_stopped else 3 * every_us, lambda: self.offsets.fetch(self))
        self._scene.every(lambda: 0 if self._is_stopped else 10 * every_us, self._check_state)
        self._scene.every(lambda: 0 if self._is_stopped else 20 * every_us, self._replace)

    def _work(self) -> None:
        producers = self._producers[self._scene.rng.choice(list(self._producers))]
        self._scene.rng.choice(producers).work()

    def _replace(self) -> None:
        """Another instance starts, while the one before it does not know yet."""
        name = self._scene.rng.choice(list(self._producers))
        if self._scene.rng.random() < REPLACED_CHANCE:
            kept = [producer for producer in self._producers[name][-1:] if not producer.is_retired]
            self._producers[name] = [*kept, self._new_producer(name, self._scene.rng.randrange(IDS))]

    # For producers

    def begin_transaction(self, transactional_id: str) -> Transaction:
        """A producer begins a transaction, with a name of its own."""
        self._counts[transactional_id] += 1
        return self._verdicts.begin(
            f"{transactional_id}.{self._counts[transactional_id]}", self._counts[transactional_id]
        )

    def is_newest(self, producer: TransactionalProducer) -> bool:
        """Whether no other instance was started after it."""
        return self._producers[producer.transactional_id][-1] is producer

    def on_pair(self, transactional_id: str, pair: Pair) -> None:
        """A producer got this pair."""
        key = transactional_id, pair.producer_id
        self._newest[key] = max(pair.epoch, self._newest.get(key, -1))

    def is_current(self, transactional_id: str, pair: Pair) -> bool:
        """Whether no producer got a newer one."""
        return pair.epoch >= self._newest[transactional_id, pair.producer_id]

    def pick(self) -> tuple[Key, PartitionInfo] | None:
        """A partition, as some broker knows it."""
        rng = self._scene.rng
        image = rng.choice(list(self._brokers.values())).image
        topic_id = image.topic_id(self.topic)
        if topic_id is None:
            return None
        partition = rng.choice(image.partitions(topic_id))
        return (topic_id, partition.index), partition

    def leader_of(self, key: Key) -> Broker | None:
        """The leader, as some broker knows it."""
        image = self._scene.rng.choice(list(self._brokers.values())).image
        partition = image.partition(*key)
        return None if partition is None or partition.leader < 0 else self._brokers[partition.leader]

    def coordinator_of(self, transactional_id: str) -> Broker | None:
        """The coordinator, as some broker knows it (FindCoordinator)."""
        asked = self._scene.rng.choice(list(self._brokers.values()))
        topic_id = asked.image.topic_id(TRANSACTIONS_TOPIC)
        if topic_id is None or not asked.is_serving or asked.coordinators is None:
            return None
        return self.leader_of((topic_id, asked.coordinators.transaction_partition(transactional_id)))

    # Consumers

    def _consume(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        key, partition = picked
        broker = self._brokers[self._scene.rng.choice(partition.replicas)]
        offset = self._scene.rng.randint(0, self._histories[key].committed_end)

        def consume(reply: Reply) -> None:
            if broker.is_serving:
                self._check_consumed(broker, key, offset)
            reply(0)

        self._scene.network.call(self, broker, Request(consume, lambda answer: None, lambda: None, TIMEOUT_US))

    def _promises(self, key: Key) -> bool:
        """Whether neither the partition nor the coordinators' log may have lost records.

        Markers go by names: those of a deleted topic may be written to the next one, and the other way round.
        """
        is_first = key[0] in self._topic_ids and self._scene.controller.image.topic_name(key[0]) is not None
        return is_first and not self._histories[key].may_lack_records and not self.may_repeat_epochs()

    def may_repeat_epochs(self) -> bool:
        """Whether the coordinators may have lost a producer epoch that they had given, and give it again."""
        return self._may_lack(TRANSACTIONS_TOPIC)

    def _may_lack(self, topic: str) -> bool:
        topic_id = self._scene.controller.image.topic_id(topic)
        return any(history.may_lack_records for key, history in self._histories.items() if key[0] == topic_id)

    def _promises_offsets(self) -> bool:
        """Whether neither the offsets nor the coordinators' log may have lost records, and none were deleted."""
        image = self._scene.controller.image
        are_first = {image.topic_id(topic) for topic in (self.topic, GROUPS_TOPIC)} <= self._topic_ids
        return are_first and not any(map(self._may_lack, (GROUPS_TOPIC, TRANSACTIONS_TOPIC)))

    def _check_consumed(self, broker: Broker, key: Key, offset: int) -> tuple[int, list[str]]:
        """Read once from a replica: the next offset, and what was received. Raises InvariantViolatedError."""
        code, stable, data, aborted = broker.engine.consume_committed(key, offset, broker.now_ms)
        if code != 0 or not self._promises(key):
            return offset, []
        where = f"partition {key[1]} of broker {broker.id}"
        gauges = self._scene.gauges(broker.id, key)
        if gauges is not None and gauges.is_leader:
            place = (broker.id, broker.life, gauges.leader_epoch, key)
            if stable < self._stable.get(place, -1):
                raise InvariantViolatedError(f"{where}: the last stable offset {stable} moves back")
            self._stable[place] = stable
        batches = record_batches(data)
        received, skipped = filtered(batches, aborted)
        texts = [text_of(batch) for batch in received if batch.is_transactional]
        for text in texts:
            self._verdicts.of(text).on_received(where, text)
        for batch in skipped:
            self._verdicts.of(text_of(batch)).on_skipped(where, text_of(batch))
        return max((batch.last_offset + 1 for batch in batches), default=stable), texts

    def on_shared(self, key: Key, batch: RecordBatch) -> None:
        """A member of a share group that reads committed records receives a batch. Raises InvariantViolatedError."""
        if batch.is_transactional and not batch.is_control and self._promises(key):
            text = text_of(batch)
            self._verdicts.of(text).on_received(f"partition {key[1]}", text)

    # Coordinators

    def _check_state(self) -> None:
        broker = self._scene.rng.choice(list(self._brokers.values()))
        if broker.is_serving and broker.is_up and not self._may_lack(TRANSACTIONS_TOPIC):
            check_transaction_state(broker)
        if broker.is_serving and broker.is_up and not self._may_lack(GROUPS_TOPIC):
            check_group_state(broker)

    # The end

    def is_over(self) -> bool:
        """Whether no transaction is open, once the producers have stopped: those that they left open time out."""
        self._is_stopped = True
        if self._scene.now_us < self._look_again_us:
            return False
        self._look_again_us = self._scene.now_us + LOOK_US
        if self._may_lack(TRANSACTIONS_TOPIC):
            return True
        if any(has_open_transactions(broker) for broker in self._brokers.values()):
            return False
        if self._commits_offsets and not self.offsets.is_over():
            return False
        led = [self._stable_and_end(key) for key in self._histories]
        return all(stable == end for stable, end in filter(None, led))

    def _stable_and_end(self, key: Key) -> tuple[int, int] | None:
        partition = self._scene.controller.committed[1].partition(*key)
        if partition is None or partition.leader < 0 or not self._promises(key):
            return None
        broker = self._brokers[partition.leader]
        gauges = self._scene.gauges(broker.id, key)
        if gauges is None or not broker.is_serving:
            return None
        code, stable, _, _ = broker.engine.consume_committed(key, gauges.log_start_offset, broker.now_ms)
        return (stable, gauges.high_watermark) if code == 0 else None

    def check_closed(self) -> None:
        """After all faults: everything is decided and as it should be. Raises InvariantViolatedError."""
        for broker in self._brokers.values():
            if not self._may_lack(TRANSACTIONS_TOPIC):
                check_transaction_state(broker)
            if not self._may_lack(GROUPS_TOPIC):
                check_group_state(broker)
        if self._commits_offsets:
            self.offsets.check_all()
        for key in self._histories:
            found = self._stable_and_end(key)
            if found is None:
                continue
            stable, end = found
            if stable != end:
                raise InvariantViolatedError(f"partition {key[1]} is stable up to {stable} of {end}")
            partition = self._scene.controller.committed[1].partition(*key)
            assert partition is not None, "it was found"
            if self._scene.controller.image.topic_id(self.topic) == key[0]:
                self._read_all(self._brokers[partition.leader], key, stable)

    def _read_all(self, broker: Broker, key: Key, stable: int) -> None:
        gauges = self._scene.gauges(broker.id, key)
        assert gauges is not None, "it leads"
        offset, received = gauges.log_start_offset, list[str]()
        while offset < stable:
            after, texts = self._check_consumed(broker, key, offset)
            if after == offset:
                return
            offset = after
            received += texts
        self._verdicts.check_complete(key, f"partition {key[1]}", gauges.log_start_offset, received)
