"""A small client for administration: finds the right broker, and turns error codes into readable messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from klamm.client import BrokerError, ClientError, SecurityError, UnreachableError
from klamm.client.connection import Address, Connection, parse_bootstrap
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

METADATA_VERSION_MAX: Final = 12
FIND_COORDINATOR_VERSION_MAX: Final = 3
"""Later versions find the coordinators of several groups."""
OF_TRANSACTIONS: Final = 1
"""The key type of a transactional id."""

_HINTS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic; `klamm topics list` shows what there is",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group; `klamm groups list` shows what there is",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such id; `klamm transactions list` shows what there is",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop its consumers first",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it already exists",
    ErrorCode.FENCED_INSTANCE_ID: "another member took this --group-instance-id; give each its own",
}


class Client:
    """Connections to the brokers of one cluster, opened on first use."""

    def __init__(self, bootstrap: str, timeout_s: float = 30, config: Mapping[str, str] | None = None) -> None:
        """`bootstrap`: `host:port,...`; the first address that answers is used.

        `config`: keys of Kafka's clients; only those of TLS and SASL have an effect. Raises ClientError.
        """
        self._config = dict(config or {})
        self._timeout_s = timeout_s
        self._bootstrap = parse_bootstrap(bootstrap)
        self._first = self._connect_first(self._bootstrap)
        self._brokers: dict[int, Connection] = {}
        self._addresses: Mapping[int, Address] = {}

    @property
    def any(self) -> Connection:
        """The bootstrap broker, for requests that any broker answers."""
        if not self._first.is_open:
            self._first = self._connect_first(self._bootstrap)
        return self._first

    def metadata(self, topics: Sequence[str] | None = (), *, create: bool = False) -> MetadataResponse:
        """Brokers, controller, and the given topics; None means all topics. `create` allows automatic creation."""
        wanted = None if topics is None else tuple(map(MetadataRequestTopic, topics))
        answer = self.any.ask(MetadataRequest(wanted, create), MetadataResponse, METADATA_VERSION_MAX)
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    def broker(self, node_id: int) -> Connection:
        """A connection to a broker of the latest metadata, which has no fenced ones. Raises ClientError."""
        known = self._brokers.get(node_id)
        if known is None or not known.is_open:
            if node_id not in self._addresses:
                self.metadata()
            if node_id not in self._addresses:
                raise UnreachableError(f"there is no broker {node_id}")
            host, port = self._addresses[node_id]
            known = self._brokers[node_id] = Connection(host, port, self._timeout_s, self._config)
        return known

    def brokers(self) -> list[Connection]:
        """A connection to every broker."""
        self.metadata()
        return [self.broker(node_id) for node_id in sorted(self._addresses)]

    def coordinator(self, group: str) -> Connection:
        """A connection to the group's coordinator. Raises ClientError."""
        return self.broker(self._find_coordinator(FindCoordinatorRequest(group), f"group {group}"))

    def coordinator_of_transactions(self, transactional_id: str) -> int:
        """The broker that coordinates a transactional id. Raises ClientError."""
        request = FindCoordinatorRequest(transactional_id, OF_TRANSACTIONS)
        return self._find_coordinator(request, f"transactional id {transactional_id}")

    def _find_coordinator(self, request: FindCoordinatorRequest, what: str) -> int:
        def find() -> FindCoordinatorResponse:
            answer = self.any.ask(request, FindCoordinatorResponse, FIND_COORDINATOR_VERSION_MAX)
            check(answer.error_code, f"coordinator of {what}", answer.error_message)
            return answer

        answer = retried(find)
        self._addresses = {**self._addresses, answer.node_id: (answer.host, answer.port)}
        return answer.node_id

    def start_again(self) -> None:
        """Close all connections and discard addresses, because a broker may return at another address."""
        self.close()
        self._brokers, self._addresses = {}, {}

    def close(self) -> None:
        """Close every connection."""
        for connection in (self._first, *self._brokers.values()):
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _connect_first(self, addresses: Iterable[Address]) -> Connection:
        errors: list[str] = []
        for host, port in addresses:
            try:
                return Connection(host, port, self._timeout_s, self._config)
            except SecurityError:
                raise
            except ClientError as error:
                errors.append(str(error))
        raise UnreachableError("\n".join(errors))


def broker_error(code: ErrorCode, text: str) -> BrokerError:
    """The exception for a response with that error code."""
    error = BrokerError(text)
    error.error_code = code
    return error


def check(code: int, what: str, message: str | None = None) -> None:
    """Raises BrokerError if the response about `what` has an error."""
    if code != ErrorCode.NONE:
        known = ErrorCode(code)
        text = _HINTS.get(known) or message or known.name.lower().replace("_", " ")
        raise broker_error(known, f"{what}: {text} ({known.name})")


_PASSING: Final[frozenset[int]] = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # A new leader whose followers have not fetched from it yet.
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


def is_outage(error: BaseException | None) -> bool:
    """Whether a broker cannot be reached or a coordinator is not available: Apache Kafka's consumer tries again."""
    return isinstance(error, UnreachableError) or (isinstance(error, BrokerError) and error.error_code in _PASSING)


LEADER_MOVED: Final[frozenset[int]] = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""The errors of a broker that does not lead a partition, or does not know yet that it does."""


def retried(ask: Callable[[], T], *, attempts: int = 50, pause_s: float = 0.1, passing: Collection[int] = ()) -> T:
    """The result of `ask`, repeated while the broker is starting or returns an error in `passing`."""
    for _ in range(attempts - 1):
        try:
            return ask()
        except BrokerError as error:
            if error.error_code not in _PASSING and error.error_code not in passing:
                raise
            time.sleep(pause_s)
    return ask()
