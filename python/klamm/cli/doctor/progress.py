"""Checks whether elections succeed, and whether the voters keep up with the leader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from klamm.cli.doctor.facts import ContactedAddress, Facts
from klamm.cli.doctor.findings import Finding, error, warning

EPOCHS_IN_VAIN: Final = 5
"""This many epochs without a record are not just split votes."""
SILENT_MS: Final = 5_000
"""A voter fetches at least twice a second; the leader resigns after 1.5 fetch timeouts (3 s) without a majority."""
BEHIND_MS: Final = 10_000


def check_leaders(facts: Facts) -> Iterator[Finding]:
    """All voters name the same leader."""
    named: dict[tuple[int, int], list[str]] = {}
    for contact in facts.contacts:
        if contact.leader_id is not None and contact.epochs:
            named.setdefault((contact.epochs[-1], contact.leader_id), []).append(contact.name)
    if len(named) < 2:
        return
    newest = max(named)
    for (epoch, leader_id), names in sorted(named.items()):
        if epoch == newest[0] and leader_id != newest[1]:
            yield error(
                "two-leaders",
                f"for {', '.join(names)} the leader of epoch {epoch} is {leader_id}, for others {newest[1]}",
                "two nodes have the same id, or quorum-state was edited: stop them, and first of all keep copies",
            )
        elif epoch < newest[0]:
            yield warning(
                "old-leader",
                f"{', '.join(names)} still has {leader_id} as the leader, of epoch {epoch}; "
                f"{newest[1]} leads epoch {newest[0]}",
                "can it reach the others over the network? Check again in some seconds",
            )


def check_epochs(facts: Facts) -> Iterator[Finding]:
    """Epochs that rise without a leader: elections that no candidate wins."""
    # One election may have taken place between the two contacts.
    racing = [one for one in facts.contacts if len(one.epochs) > 1 and _rise(one) > 1]
    if racing and facts.leader is None:
        one = max(racing, key=_rise)
        yield error(
            "epochs-race",
            f"elections follow each other and no candidate wins: {one.name} went from epoch {one.epochs[0]} "
            f"to {one.epochs[-1]}",
            "can all voters reach each other, in both directions? Slow disks or pauses longer than "
            "controller.quorum.election.timeout.ms (1 s) have the same effect: raise it on every controller",
        )
    for directory in facts.directories:
        election, end = directory.election, directory.end
        if election is None or end is None or election.epoch - end.epoch < EPOCHS_IN_VAIN:
            continue
        yield warning(
            "epochs-in-vain",
            f"{directory.name} has seen epoch {election.epoch}, but its log ends in epoch {end.epoch}: "
            f"{election.epoch - end.epoch} elections in which it saw no leader",
            "can it and the others reach each other over the network?",
        )


def check_followers(facts: Facts) -> Iterator[Finding]:
    """Voters that do not fetch or do not keep up; without them the quorum tolerates fewer failures."""
    leader = facts.leader
    if leader is None or leader.quorum is None:
        return
    quorum = leader.quorum
    now_ms = leader_now(leader)
    for voter in quorum.voters:
        if voter.node_id == quorum.leader_id:
            continue
        silent_ms = now_ms - voter.last_fetch_ms
        behind_ms = now_ms - voter.last_caught_up_ms
        records = quorum.leader_end_offset - max(voter.log_end_offset, 0)
        if voter.last_fetch_ms < 0 or silent_ms > SILENT_MS:
            source = f"leader {quorum.leader_id}"
            ago = f"last fetched from {source} {silent_ms / 1000:.0f} s ago"
            fetched = f"has never fetched from {source}" if voter.last_fetch_ms < 0 else ago
            yield error(
                "silent-voter",
                f"voter {voter.node_id} {fetched}; it lacks {records} records",
                "is it running, and can it reach the leader's address?",
            )
        elif voter.last_caught_up_ms < 0 or behind_ms > BEHIND_MS:
            yield warning(
                "lagging-voter",
                f"voter {voter.node_id} is {records} records behind leader {quorum.leader_id}"
                + ("" if voter.last_caught_up_ms < 0 else f", for {behind_ms / 1000:.0f} s"),
                "is its disk or network slow? While it lags, the quorum tolerates one failure less",
            )


def check_logs(facts: Facts) -> Iterator[Finding]:
    """Without a leader: which log is the longest by the rule of elections."""
    logs = [(one.end.epoch, one.end.offset, one) for one in facts.directories if one.end is not None]
    if facts.leader is not None or len(logs) < 2:
        return
    epoch, offset, longest = max(logs, key=lambda log: log[:2])
    for other_epoch, other_offset, one in logs:
        if (other_epoch, other_offset) != (epoch, offset):
            yield warning(
                "shorter-log",
                f"the log of {one.name} ends at {other_offset} in epoch {other_epoch}, "
                f"that of {longest.name} at {offset} in epoch {epoch}",
                "only the node with the longest log of a majority can be elected: start that one",
            )


def leader_now(leader: ContactedAddress) -> int:
    """The leader's clock at the time of its response, when it counts itself as caught up."""
    quorum = leader.quorum
    if quorum is None:
        return leader.asked_at_ms
    own = next((one for one in quorum.voters if one.node_id == quorum.leader_id), None)
    return own.last_fetch_ms if own is not None and own.last_fetch_ms >= 0 else leader.asked_at_ms


def _rise(contact: ContactedAddress) -> int:
    return contact.epochs[-1] - contact.epochs[0]
