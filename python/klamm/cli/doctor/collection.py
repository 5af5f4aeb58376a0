"""Collecting the facts: everybody who is named is asked, then everybody whom those name."""

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
"""Two election timeouts and more: a quorum that only just lost its leader has another by then."""
_AT_ONCE: Final = 8
Ask = Callable[[Address], tuple[ContactedAddress, dict[int, Address]]]
"""What is found at an address, and the controllers that it knows of."""


def collect(
    bootstrap: Sequence[Address], paths: Sequence[Path], *, probe_disk: bool, config: Mapping[str, str] | None = None
) -> Facts:
    """Everything that can be found out from here. `config`: keys of Kafka's clients, for controllers with TLS or SASL.

    ClientError: a path that does not exist.
    """
    ask_at = functools.partial(ask, config=config or {})
    directories = tuple(look(path, probe_disk=probe_disk) for path in paths)
    ids = _ids_of(directories)
    contacts, known = _ask_all(ask_at, dict.fromkeys([*bootstrap, *ids]))
    ids |= {address: node_id for address, node_id in known.items() if address not in ids}
    # A voter may have several listeners: those that DescribeCluster names are of the protocol that was asked by.
    named = set(known.values())
    ids |= {address: node_id for address, node_id in _ids_of_leader(contacts).items() if node_id not in named}
    more, _ = _ask_all(ask_at, (address for address in ids if address not in contacts))
    contacts |= more
    reached = [contact for contact in contacts.values() if contact.is_reached]
    if reached and not any(map(_has_settled, reached)):
        contacts = _look_again(ask_at, contacts)
    told = tuple(contact._replace(voter_id=ids.get(address)) for address, contact in contacts.items())
    return Facts(told, directories, time.time_ns() // 1_000_000)


def _ids_of(directories: Iterable[Directory]) -> dict[Address, int]:
    """Where voters listen: as configurations say, else the voters in the log, else who registered."""
    found: dict[int, Address] = {}
    for directory in directories:
        voters = directory.voters
        said = {voter.key.id: (one.host, one.port) for voter in voters.voters for one in voter.endpoints[:1]}
        registered = {node_id: address for node_id, address in directory.registered.items() if node_id in voters.ids}
        configured = {} if directory.config is None else directory.config.voters
        found |= {**registered, **said, **{one: address for one, address in configured.items() if address[1] > 0}}
    return {address: voter_id for voter_id, address in found.items()}


def _ids_of_leader(contacts: Mapping[Address, ContactedAddress]) -> dict[Address, int]:
    found: dict[Address, int] = {}
    for contact in contacts.values():
        for voter in contact.quorum.voters if contact.quorum is not None else ():
            found |= {(one.host, one.port): voter.node_id for one in voter.endpoints[:1]}
    return found


def _ask_all(ask_at: Ask, addresses: Iterable[Address]) -> tuple[dict[Address, ContactedAddress], dict[Address, int]]:
    """What each address gives, and where the controllers are that they know of."""
    contacts: dict[Address, ContactedAddress] = {}
    ids: dict[Address, int] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for contact, known in pool.map(ask_at, addresses):
            contacts[contact.address] = contact
            ids |= {address: node_id for node_id, address in known.items()}
    return contacts, ids


def _has_settled(contact: ContactedAddress) -> bool:
    """Whether this is a leader that everybody fetches from: a new one has not heard of all yet."""
    return contact.quorum is not None and all(voter.last_fetch_ms >= 0 for voter in contact.quorum.voters)


def _look_again(ask_at: Ask, contacts: Mapping[Address, ContactedAddress]) -> dict[Address, ContactedAddress]:
    """Once more, later: a leader may be found, or the epochs have moved."""
    time.sleep(SECOND_LOOK_S)
    again, _ = _ask_all(ask_at, contacts)
    return {
        address: again[address]._replace(epochs=(*contact.epochs, *again[address].epochs))
        for address, contact in contacts.items()
    }
