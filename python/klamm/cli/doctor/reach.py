"""Checks which voters can be reached, and whether they are a majority."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from klamm.cli.doctor.facts import Facts, Refusal
from klamm.cli.doctor.findings import Finding, error, warning
from klamm.config.node_config import Address

_ADVICE: Final = {
    Refusal.REFUSED: "start the controller there, or correct its address",
    Refusal.TIMED_OUT: "is the host up, and does a firewall let this port through?",
    Refusal.UNKNOWN_HOST: "correct the name, or add it to the DNS of every node",
    Refusal.UNREACHABLE: "check the network between here and there",
    Refusal.NOT_TRUSTED: "correct the keys of --command-config",
    Refusal.NOT_A_CONTROLLER: (
        "name the controller's listener (controller.listener.names), not a broker's; "
        "if it has TLS or SASL, --command-config says how"
    ),
}


def check_reach(facts: Facts) -> Iterator[Finding]:
    """Each address that does not respond."""
    for contact in facts.contacts:
        if contact.refusal is not None:
            kind = "unreachable-voter" if contact.voter_id is not None else "unreachable"
            detail = f" ({contact.detail})" if contact.detail else ""
            yield error(kind, f"{contact.name}: {contact.refusal.value}{detail}", _ADVICE[contact.refusal])


def check_majority(facts: Facts) -> Iterator[Finding]:
    """Whether the voters that respond or run on this machine can elect a leader."""
    voters = [voter.key.id for voter in facts.voters()]
    if not voters or not facts.contacts or facts.leader is not None:
        return  # directories alone do not show which other voters are running
    if any(one.refusal is Refusal.NOT_TRUSTED for one in facts.contacts):
        return  # a voter that does not respond to this machine may respond to the others
    alive = set(alive_voters(facts)) & set(voters)
    needed = len(voters) // 2 + 1
    if len(alive) < needed:
        down = [one for one in voters if one not in alive]
        yield error(
            "majority-lost",
            f"{len(alive)} of {len(voters)} voters respond, {needed} are needed to elect a leader; "
            f"missing: {_listed(down)}",
            f"start {_listed(down)}; if their disks are permanently lost: klamm quorum recover --help",
        )
    else:
        yield error(
            "no-leader",
            f"{_listed(sorted(alive))} of the voters {_listed(voters)} respond, a majority, but none leads",
            "other findings may say why; else check again in some seconds, and read the controllers' logs",
        )


def check_even(facts: Facts) -> Iterator[Finding]:
    """An even number of voters tolerates no more failures than one voter less, and has more split votes."""
    count = len(facts.voters())
    if count and count % 2 == 0:
        yield warning(
            "even-voters",
            f"there are {count} voters: they tolerate the loss of {(count - 1) // 2}, as {count - 1} would",
            "add one, or remove one: klamm quorum add | remove",
        )


def check_localhost(facts: Facts) -> Iterator[Finding]:
    """Voters whose address is local to their machine or cannot be connected to."""
    addresses = dict(_addresses(facts))
    elsewhere = [host for host, _ in addresses.values() if not _is_local(host)]
    for voter_id, (host, port) in sorted(addresses.items()):
        if _is_open(host):
            yield error(
                "open-address",
                f"voter {voter_id} has the endpoint {host}:{port}, to which nothing can connect",
                "set the host in advertised.listeners, or in controller.quorum.voters, to one that the others reach",
            )
        elif _is_local(host) and elsewhere:
            yield error(
                "advertises-localhost",
                f"voter {voter_id} has the endpoint {host}:{port}, but other voters are on other hosts "
                f"({', '.join(sorted(set(elsewhere)))}): each of them would connect to itself",
                "set the host in advertised.listeners, or in controller.quorum.voters, to one that the others reach",
            )


def alive_voters(facts: Facts) -> list[int]:
    """The node ids that respond, or that run in a directory on this machine."""
    found = {one.voter_id for one in facts.contacts if one.is_reached and one.voter_id is not None}
    found |= {one.meta.node_id for one in facts.directories if one.is_running and one.meta is not None}
    return sorted(found)


def _addresses(facts: Facts) -> Iterator[tuple[int, Address]]:
    """The address of each voter: from configurations first, then from the log or the leader."""
    for directory in facts.directories:
        if directory.config is not None:
            yield from directory.config.voters.items()
    for voter in facts.voters():
        for endpoint in voter.endpoints[:1]:
            yield voter.key.id, (endpoint.host, endpoint.port)


def _is_local(host: str) -> bool:
    if host.lower() in ("localhost", "localhost.localdomain"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_open(host: str) -> bool:
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids)) or "none"
