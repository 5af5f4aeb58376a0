"""The transactions of a node: its coordinator, the markers that it writes, and its requests to other coordinators."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

from klamm._engine.metadata import Delta, Image
from klamm._engine.node import Engine, VerifyEvent
from klamm.node.coordinators.topic_coordinator import TopicCoordinator
from klamm.protocol.errors import ErrorCode, MalformedRequest

if TYPE_CHECKING:
    from klamm._engine.client import Conditions
    from klamm.broker.producer_ids import ProducerIds
    from klamm.client.peer import Outcome
    from klamm.config.node_config import NodeConfig
    from klamm.coordinator.groups.driver import GroupCoordinator
    from klamm.coordinator.transactions.config import TransactionConfig
    from klamm.coordinator.transactions.driver import TransactionCoordinator
    from klamm.node.coordinators.appends import Appends
    from klamm.node.coordinators.marker_writer import MarkerWriter
    from klamm.node.coordinators.other_brokers import OtherBrokers
    from klamm.node.coordinators.verification import Verification
    from klamm.protocol.messages.topics import CreatableTopic
    from klamm.protocol.messages.transactions import Marker, MarkerErrors, Place

log: Final = logging.getLogger("klamm.node.transactions")

TRANSACTIONS_TOPIC: Final = "__transaction_state"
MARKER_VERSIONS: Final = (1, 2)
FEATURE: Final = "transaction.version"
NO_LEADER: Final = -1
MARKERS: Final = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name="
VERIFICATIONS: Final = "kafka.server:type=AddPartitionsToTxnManager,name="


class NodeTransactions(TopicCoordinator["TransactionCoordinator"]):
    """Creates the coordinator, and connects it to the partitions of this broker and to other brokers."""

    topic: ClassVar[str] = TRANSACTIONS_TOPIC

    def __init__(
        self,
        config: NodeConfig,
        engine: Engine,
        image: Callable[[], Image],
        appends: Appends,
        *,
        producer_ids: ProducerIds,
        groups: Callable[[], GroupCoordinator],
        conditions: Conditions | None,
    ) -> None:
        """`conditions`: those of the node of an embedded cluster."""
        super().__init__(config, engine, image, appends)
        self._producer_ids, self._groups, self._conditions = producer_ids, groups, conditions
        self._verified: list[tuple[int, list[ErrorCode]]] = []
        """The coordinators' answers of this turn of the loop, for the engine."""

    @cached_property
    def config(self) -> TransactionConfig:
        """The configuration of the coordinator."""
        from klamm.coordinator.transactions.config import TransactionConfig

        integer = self._config.integer
        return TransactionConfig(
            transaction_max_timeout_ms=integer("transaction.max.timeout.ms"),
            id_expiration_ms=integer("transactional.id.expiration.ms"),
            timeout_check_interval_ms=integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiry_check_interval_ms=integer("transaction.remove.expired.transaction.cleanup.interval.ms"),
            two_phase_commit_enable=self._config.boolean("transaction.two.phase.commit.enable"),
            request_timeout_ms=integer("request.timeout.ms"),
        )

    def _make(self) -> TransactionCoordinator:
        from klamm.coordinator.transactions.driver import TransactionCoordinator

        return TransactionCoordinator(
            self.config,
            self._log(codec=0, load_bytes=self._config.integer("transaction.state.log.load.buffer.size")),
            self._config.integer("transaction.state.log.num.partitions"),
            take_producer_id=self._producer_ids.take_now,
            transaction_version=lambda: self._image().feature(FEATURE),
            leader_of=self._leader_of,
            send_markers=self._send_markers,
        )

    def new_topic(self) -> CreatableTopic:
        """`__transaction_state`."""
        from klamm.protocol.messages.topics import CreatableTopic, CreatableTopicConfig

        integer = self._config.integer
        settings = {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(integer("transaction.state.log.min.isr")),
            "segment.bytes": str(integer("transaction.state.log.segment.bytes")),
        }
        return CreatableTopic(
            self.topic,
            integer("transaction.state.log.num.partitions"),
            integer("transaction.state.log.replication.factor"),
            (),
            tuple(CreatableTopicConfig(*pair) for pair in settings.items()),
        )

    def counters(self) -> dict[str, int]:
        """The counters of the coordinator by name."""
        from klamm.coordinator.runtime.counts import RuntimeCounts

        runtime = self.coordinator.runtime.counts if self._is_made else RuntimeCounts()
        verification = self._verification if "_verification" in self.__dict__ else None
        return runtime.named("klamm.coordinator:type=Transactions,name=") | {
            f"{VERIFICATIONS}VerificationTimeMs": verification.asked if verification else 0,
            f"{VERIFICATIONS}VerificationFailureRate": verification.failed if verification else 0,
        }

    def gauges(self) -> dict[str, int]:
        """The numbers of the moment by name."""
        unreachable, retries = self.coordinator.waiting if self._is_made else (0, 0)
        return {
            f"{MARKERS}UnknownDestinationQueueSize": unreachable,
            f"{MARKERS}LogAppendRetryQueueSize": retries,
        }

    def _on_published(self, image: Image, delta: Delta) -> None:
        self.coordinator.on_metadata()

    def on_published(self, image: Image, delta: Delta) -> None:
        """A newer image is committed."""
        super().on_published(image, delta)
        if delta.changed_brokers and "_others" in self.__dict__:
            self._others.on_published(image)

    # Markers

    @cached_property
    def _others(self) -> OtherBrokers:
        from klamm.node.coordinators.other_brokers import OtherBrokers

        return OtherBrokers(self._config, self._image, self._conditions)

    def write_markers(self, markers: Sequence[Marker], answer: Callable[[MarkerErrors], None]) -> None:
        """Write markers to the partitions that this broker leads (WriteTxnMarkers)."""
        self._writer.write(markers, answer)

    @cached_property
    def _writer(self) -> MarkerWriter:
        from klamm.driving.clock import LoopClock
        from klamm.node.coordinators.marker_writer import MarkerWriter

        return MarkerWriter(
            self._engine,
            self._image,
            self._appends,
            self._groups,
            timeout_ms=self._config.integer("request.timeout.ms"),
            now_ms=LoopClock.of_sessions(since_1970=True).now_ms,
        )

    def _leader_of(self, place: Place) -> int | None:
        """The broker that leads a partition; None if there is no such partition, -1 if it cannot be reached."""
        leader = self._image().leader(*place)
        if leader is None or leader == self._config.node_id:
            return leader
        return leader if self._others.is_reachable(leader) else NO_LEADER

    def _send_markers(
        self, broker: int, markers: Sequence[Marker], answer: Callable[[MarkerErrors | None], None]
    ) -> None:
        if broker == self._config.node_id:
            self._writer.write(markers, answer)
            return
        from klamm.client import ClientError
        from klamm.protocol.messages.transactions import WriteTxnMarkersRequest, writable
        from klamm.protocol.wire import codec

        request = WriteTxnMarkersRequest(tuple(writable(marker) for marker in markers))
        try:
            peer = self._others.peer(broker)
        except ClientError as error:
            log.debug("markers for broker %d are sent again: %s", broker, error)
            asyncio.get_running_loop().call_soon(answer, None)
            return
        peer.send(
            request.API_KEY,
            MARKER_VERSIONS,
            lambda version: codec.write_request(request, version),
            lambda outcome: answer(_marker_errors(broker, outcome)),
        )

    # Verification

    @cached_property
    def _verification(self) -> Verification:
        from klamm.node.coordinators.verification import Verification

        integer = self._config.integer
        return Verification(
            self._config.node_id,
            lambda: self.coordinator,
            self._coordinator_of,
            lambda: self._others,
            retry_ms=integer("add.partitions.to.txn.retry.backoff.ms"),
            retries_for_ms=min(integer("add.partitions.to.txn.retry.backoff.max.ms"), integer("request.timeout.ms")),
        )

    def on_verify(self, event: VerifyEvent) -> None:
        """A produce request waits for the coordinator of its transaction."""
        from klamm.protocol.messages.transactions import AddRequest

        partitions = event.partitions
        request = AddRequest(
            event.transactional_id,
            event.producer_id,
            event.producer_epoch,
            frozenset(partitions),
            2 if event.is_adding else 0,
        )

        def answer(codes: Mapping[Place, ErrorCode]) -> None:
            if not self._verified:
                asyncio.get_running_loop().call_soon(self._pass_verified)
            self._verified.append((event.handle, [codes[place] for place in partitions]))

        self._verification.ask(request, answer)

    def _pass_verified(self) -> None:
        verified, self._verified = self._verified, []
        self._engine.on_verified(verified)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        leader = self._leader_of((self.topic, self.partition_for(transactional_id)))
        return None if leader in (None, NO_LEADER) else leader

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        is_adding: bool,
    ) -> list[ErrorCode]:
        """A code of the coordinator for each partition; NETWORK_EXCEPTION if it did not answer.

        `is_adding`: the partitions are added to the transaction (TxnOffsetCommit v5).
        """
        from klamm.protocol.messages.transactions import AddRequest

        answered: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()
        request = AddRequest(
            transactional_id, producer_id, producer_epoch, frozenset(partitions), 2 if is_adding else 0
        )

        def answer(codes: Mapping[Place, ErrorCode]) -> None:
            if not answered.done():
                # As in Kafka, what an older coordinator cannot verify is accepted.
                found = (codes[place] for place in partitions)
                old = ErrorCode.UNSUPPORTED_VERSION
                answered.set_result([ErrorCode.NONE if code is old else code for code in found])

        self._verification.ask(request, answer)
        return await answered

    def close(self) -> None:
        """Unload all partitions, and close the connections to other brokers."""
        super().close()
        if "_verification" in self.__dict__:
            self._verification.close()
        if "_writer" in self.__dict__:
            self._writer.close()
        if "_others" in self.__dict__:
            self._others.close()


def _marker_errors(broker: int, outcome: Outcome) -> MarkerErrors | None:
    """A broker's response to WriteTxnMarkers; None if there was none."""
    from klamm.client import ClientError
    from klamm.client.peer import Answer
    from klamm.protocol.messages.transactions import WriteTxnMarkersResponse, errors_of
    from klamm.protocol.wire import codec

    try:
        if isinstance(outcome, Answer):
            return errors_of(codec.read_response(WriteTxnMarkersResponse, outcome.api_version, outcome.body))
        raise outcome
    except (ClientError, MalformedRequest) as error:
        log.debug("markers for broker %d are sent again: %s", broker, error)
        return None
