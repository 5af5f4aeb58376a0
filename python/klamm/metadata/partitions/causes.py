"""Why a partition changed, as far as the records show it."""

from __future__ import annotations

from klamm.metadata.log.entries import Entry
from klamm.metadata.partitions.broker_events import BrokerEvents
from klamm.metadata.partitions.partition_state import PartitionState
from klamm.metadata.rendering.descriptions import ids_text


def cause_of(entry: Entry, before: PartitionState, after: PartitionState, events: BrokerEvents) -> str:
    """The causes of a change, joined; empty when the records give none."""
    found = [
        *_reassignment(before, after),
        *_brokers_lost(entry, before, after, events),
        *_leader(entry, before, after, events),
        *_isr(entry, before, after, events),
        *_recovery(before, after),
    ]
    return "; ".join(dict.fromkeys(found))


def is_unclean(before: PartitionState, after: PartitionState) -> bool:
    """Whether the new leader was in neither the ISR nor the ELR: records that it lacked are lost.

    A replica that a reassignment adds can enter the ISR and become the leader with one record; it lacks nothing.
    """
    has_new = after.leader >= 0 and after.leader != before.leader
    is_added = after.leader in before.adding_replicas and not after.is_recovering
    return has_new and after.leader not in (*before.isr, *before.elr) and not is_added


def _reassignment(before: PartitionState, after: PartitionState) -> list[str]:
    if after.is_reassigning and not before.is_reassigning:
        parts = [f"adding {ids_text(after.adding_replicas)}"] * bool(after.adding_replicas)
        parts += [f"removing {ids_text(after.removing_replicas)}"] * bool(after.removing_replicas)
        return [f"a reassignment begins: {', '.join(parts)}"]
    if before.is_reassigning and not after.is_reassigning:
        is_done = set(before.adding_replicas) <= set(after.replicas)
        is_done = is_done and not set(before.removing_replicas) & set(after.replicas)
        return ["the reassignment is complete" if is_done else "the reassignment was cancelled"]
    if before.is_reassigning and set(before.adding_replicas) != set(after.adding_replicas):
        return ["the reassignment goes elsewhere"]
    return []


def _brokers_lost(entry: Entry, before: PartitionState, after: PartitionState, events: BrokerEvents) -> list[str]:
    """Brokers that led or were in sync and no longer are: a broker event explains it, or they fell behind."""
    lost = [one for one in before.isr if one not in after.isr]
    if before.leader >= 0 and after.leader != before.leader and before.leader not in lost:
        lost.insert(0, before.leader)
    causes = {one: events.cause(one, entry) for one in lost}
    found = [cause.text for cause in causes.values() if cause is not None]
    slow = [one for one in lost if causes[one] is None and one not in after.isr and one in after.replicas]
    if slow and after.leader == before.leader:
        found.append(f"the leader reported that {_brokers(slow)} fell behind")
    return found


def _leader(entry: Entry, before: PartitionState, after: PartitionState, events: BrokerEvents) -> list[str]:
    new = after.leader
    if new == before.leader:
        return []
    if new < 0:
        return ["no other replica of the ISR is alive"]
    if is_unclean(before, after):
        lacking = [one for one in (*before.isr, *before.elr) if one != new]
        what = f"what only {_brokers(lacking)} had" if lacking else "the records that it did not have"
        return [f"unclean election: broker {new} was not in sync, {what} is lost"]
    found = []
    if before.leader < 0:
        back = events.cause(new, entry)
        found.append(back.text if back is not None else f"broker {new} can lead again")
    if new not in before.isr:
        found.append(f"broker {new} was elected from the eligible leader replicas")
    elif before.leader >= 0 and before.leader not in after.replicas:
        found.append(f"broker {before.leader} is no replica any more")
    elif before.leader >= 0 and events.cause(before.leader, entry) is None:
        is_preferred = new == after.replicas[0]
        found.append("preferred leader election" if is_preferred else "an election was requested")
    return found


def _isr(entry: Entry, before: PartitionState, after: PartitionState, events: BrokerEvents) -> list[str]:
    gained = [one for one in after.isr if one not in before.isr and one != after.leader]
    gained += [one for one in after.isr if one not in before.isr and one == after.leader == before.leader]
    if not gained or is_unclean(before, after):
        return []
    return [f"{_brokers(gained)} caught up with the leader"]


def _recovery(before: PartitionState, after: PartitionState) -> list[str]:
    return ["the leader has recovered"] if before.is_recovering and not after.is_recovering else []


def _brokers(ids: list[int]) -> str:
    return f"broker{'s' * (len(ids) > 1)} {', '.join(map(str, ids))}"
