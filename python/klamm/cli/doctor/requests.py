"""Requests to the controller at an address."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Final

from klamm.admin.leadership import leader_and_epoch
from klamm.admin.quorum import CONTROLLERS, Quorum, ask_quorum, quorum_of
from klamm.cli.doctor.facts import ContactedAddress, Refusal
from klamm.client import BrokerError, ClientError, SecurityError
from klamm.client.connection import Connection
from klamm.config.node_config import Address
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

TIMEOUT_S: Final = 3


def ask(address: Address, config: Mapping[str, str]) -> tuple[ContactedAddress, dict[int, Address]]:
    """Contact an address with keys of Kafka's clients; returns the result and the controllers that it knows."""
    refusal = _refusal(address)
    if refusal is not None:
        return ContactedAddress(address, refusal=refusal[0], detail=refusal[1]), {}
    try:
        with Connection(*address, TIMEOUT_S, config) as connection:
            return _asked(address, connection)
    except SecurityError as error:
        return ContactedAddress(address, refusal=Refusal.NOT_TRUSTED, detail=str(error)), {}
    except ClientError as error:
        return ContactedAddress(address, refusal=Refusal.NOT_A_CONTROLLER, detail=str(error)), {}


def _asked(address: Address, connection: Connection) -> tuple[ContactedAddress, dict[int, Address]]:
    cluster = connection.ask(DescribeClusterRequest(endpoint_type=CONTROLLERS), DescribeClusterResponse, 1)
    if cluster.error_code is not ErrorCode.NONE:
        detail = cluster.error_message or cluster.error_code.name
        return ContactedAddress(address, refusal=Refusal.NOT_A_CONTROLLER, detail=detail), {}
    known = {one.broker_id: (one.host, one.port) for one in cluster.brokers}
    leader_id, epoch = leader_and_epoch(connection)
    asked_at_ms = time.time_ns() // 1_000_000
    quorum = _quorum(connection, cluster.cluster_id)
    if quorum is not None:
        leader_id, epoch = quorum.leader_id, quorum.leader_epoch
    contact = ContactedAddress(
        address,
        cluster_id=cluster.cluster_id,
        leader_id=leader_id,
        epochs=() if epoch is None else (epoch,),
        quorum=quorum,
        asked_at_ms=asked_at_ms,
    )
    return contact, known


def _refusal(address: Address) -> tuple[Refusal, str] | None:
    try:
        socket.create_connection(address, TIMEOUT_S).close()
    except ConnectionRefusedError:
        return Refusal.REFUSED, ""
    except TimeoutError:
        return Refusal.TIMED_OUT, f"{TIMEOUT_S} s"
    except socket.gaierror as error:
        return Refusal.UNKNOWN_HOST, error.strerror or ""
    except OSError as error:
        return Refusal.UNREACHABLE, error.strerror or str(error)
    return None


def _quorum(connection: Connection, cluster_id: str) -> Quorum | None:
    try:
        return quorum_of(ask_quorum(connection), cluster_id)
    except BrokerError:
        return None
