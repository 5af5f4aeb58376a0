"""Collects the facts: contacts all given addresses, then the controllers that these name."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from klamm.cli.doctor.facts import ContactedAddress, Directory, Facts
from klamm.cli.doctor.inspection import look
from klamm.cli.doctor.requests import ask
from klamm.config.node_config import Address

SECOND_LOOK_S: Final = 2.5
"""More than two election timeouts: after that, a quorum that has just lost its leader has elected another."""
_AT_ONCE: Final = 8
Ask = Callable[[Address], tuple[ContactedAddress, dict[int, Address]]]
"""The result of contacting an address, and the controllers that it knows."""


def collect(
    bootstrap: Sequence[Address], paths: Sequence[Path], *, probe_disk: bool, config: Mapping[str, str] | None = None
) -> Facts:
    """All facts that can be collected from this machine.

    `config`: keys of Kafka's clients, for controllers with TLS or SASL. Raises ClientError for a path that does not
    exist.
    """
    ask_at = functools.partial(ask, config=config or {})
    directories = tuple(look(path, probe_disk=probe_disk) for path in paths)
    ids = _ids_of(directories)
    contacts, known = _ask_all(ask_at, dict.fromkeys([*bootstrap, *ids]))
    ids |= {address: node_id for address, node_id in known.items() if address not in ids}
    # A voter may have several listeners. DescribeCluster names those of the protocol of the request.
    named = set(known.values())
    ids |= {address: node_id for address, node_id in _ids_of_leader(contacts).items() if node_id not in named}
    more, _ = _ask_all(ask_at, (address for address in ids if address not in contacts))
    contacts |= more
    reached = [contact for contact in contacts.values() if contact.is_reached]
    if reached and not any(map(_has_settled, reached)):
        contacts = _look_again(ask_at, contacts)
    identified = tuple(contact._replace(voter_id=ids.get(address)) for address, contact in contacts.items())
    return Facts(identified, directories, time.time_ns() // 1_000_000)


def _ids_of(directories: Iterable[Directory]) -> dict[Address, int]:
    """The addresses of voters: from configurations, else from the voters in the log, else from registrations."""
    found: dict[int, Address] = {}
    for directory in directories:
        voters = directory.voters
        recorded = {voter.key.id: (one.host, one.port) for voter in voters.voters for one in voter.endpoints[:1]}
        registered = {node_id: address for node_id, address in directory.registered.items() if node_id in voters.ids}
        configured = {} if directory.config is None else directory.config.voters
        found |= {**registered, **recorded, **{one: address for one, address in configured.items() if address[1] > 0}}
    return {address: voter_id for voter_id, address in found.items()}


def _ids_of_leader(contacts: Mapping[Address, ContactedAddress]) -> dict[Address, int]:
    found: dict[Address, int] = {}
    for contact in contacts.values():
        for voter in contact.quorum.voters if contact.quorum is not None else ():
            found |= {(one.host, one.port): voter.node_id for one in voter.endpoints[:1]}
    return found


def _ask_all(ask_at: Ask, addresses: Iterable[Address]) -> tuple[dict[Address, ContactedAddress], dict[Address, int]]:
    """The result for each address, and the addresses of the controllers that they know."""
    contacts: dict[Address, ContactedAddress] = {}
    ids: dict[Address, int] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for contact, known in pool.map(ask_at, addresses):
            contacts[contact.address] = contact
            ids |= {address: node_id for node_id, address in known.items()}
    return contacts, ids


def _has_settled(contact: ContactedAddress) -> bool:
    """Whether this is a leader from which all voters fetch; a new leader has not heard from all of them yet."""
    return contact.quorum is not None and all(voter.last_fetch_ms >= 0 for voter in contact.quorum.voters)


def _look_again(ask_at: Ask, contacts: Mapping[Address, ContactedAddress]) -> dict[Address, ContactedAddress]:
    """Contact the addresses again later: a leader may be elected, or the epochs may have changed."""
    time.sleep(SECOND_LOOK_S)
    again, _ = _ask_all(ask_at, contacts)
    return {
        address: again[address]._replace(epochs=(*contact.epochs, *again[address].epochs))
        for address, contact in contacts.items()
    }
