"""The heartbeat table: every pair of current and requested state, and the sessions (`BrokerHeartbeatManager`)."""

from __future__ import annotations

from itertools import product

import pytest

from klamm.controller.nodes.heartbeats import (
    EVERYTHING_REPLAYED,
    NEXT_STATES,
    BrokerControlState,
    BrokerHeartbeats,
    Guard,
    RequestedState,
    printed_table,
)
from klamm.protocol.messages.registration import BrokerHeartbeatRequest

F, U, C, S = BrokerControlState

# Kafka's table (`BrokerHeartbeatManager`) once more: (state, want fence, want shut down, caught up, leads, others have
# applied the moves) to the next state; None matches both.
EXPECTED = [
    (F, None, True, None, None, None, S),
    (F, False, False, True, None, None, U),
    (F, False, False, False, None, None, F),
    (F, True, False, None, None, None, F),
    (U, True, True, None, None, None, S),
    (U, True, False, None, None, None, F),
    (U, False, True, None, True, None, C),
    (U, False, True, None, False, None, S),
    (U, False, False, None, None, None, U),
    (C, None, None, None, True, None, C),
    (C, None, None, None, False, True, S),
    (C, None, None, None, False, False, C),
    (S, None, None, None, None, None, S),
]

REGISTERED_AT = 50
MOVED_AT = 70


def in_state(state: BrokerControlState, others_at: int) -> BrokerHeartbeats:
    heartbeats = BrokerHeartbeats(9_000)
    heartbeats.register(2, is_fenced=False)
    heartbeats.touch(2, is_fenced=False, metadata_offset=others_at)
    heartbeats.register(1, is_fenced=state is F)
    if state is C:
        heartbeats.begin_controlled_shutdown(1, MOVED_AT)
    return heartbeats


def matching(*case: object) -> list[BrokerControlState]:
    """The next states of the expected rows that match a case."""
    return [
        row[-1]
        for row in EXPECTED
        if all(wanted is None or wanted == found for wanted, found in zip(row, case, strict=False))
    ]


@pytest.mark.parametrize(("state", "requested"), list(product([F, U, C], RequestedState)))
def test_every_pair_under_every_circumstance(state: BrokerControlState, requested: RequestedState) -> None:
    for is_caught_up, leads_any, others_saw in product([True, False], repeat=3):
        heartbeats = in_state(state, MOVED_AT if others_saw else MOVED_AT - 1)
        offset = REGISTERED_AT if is_caught_up else REGISTERED_AT - 1
        request = BrokerHeartbeatRequest(1, 9, offset, *requested.value)
        expected = matching(state, *requested.value, is_caught_up, leads_any, others_saw)
        assert len(expected) == 1, "the expected rows are one for each case"
        assert heartbeats.next_state(request, REGISTERED_AT, leads_any) == (state, expected[0])


def test_the_table_is_complete_and_unambiguous() -> None:
    assert set(NEXT_STATES) == set(product(BrokerControlState, RequestedState))
    for row in NEXT_STATES.values():
        assert (row.then is row.otherwise) == (row.guard is Guard.ALWAYS)
    assert all(row.then is S for (state, _), row in NEXT_STATES.items() if state is S)


def test_the_printed_table_has_a_line_for_each_pair() -> None:
    lines = printed_table().splitlines()
    assert len(lines) == 2 + len(NEXT_STATES)
    assert "| UNFENCED | SHUT_DOWN | leads no partition | SHUTDOWN_NOW | CONTROLLED_SHUTDOWN |" in lines


def test_a_controlled_shutdown_cannot_be_revoked_and_ends_with_fencing() -> None:
    heartbeats = in_state(C, others_at=0)
    heartbeats.begin_controlled_shutdown(1, MOVED_AT + 100)
    request = BrokerHeartbeatRequest(1, 9, 0)
    heartbeats.touch(2, is_fenced=False, metadata_offset=MOVED_AT)
    assert heartbeats.is_shutting_down(1)
    assert heartbeats.next_state(request, REGISTERED_AT, leads_any=False) == (C, S)
    heartbeats.touch(1, is_fenced=True, metadata_offset=0)
    assert not heartbeats.is_shutting_down(1)
    assert heartbeats.next_state(request, REGISTERED_AT, leads_any=False)[0] is F


def test_only_active_brokers_are_waited_for() -> None:
    heartbeats = BrokerHeartbeats(9_000)
    assert heartbeats.lowest_active_offset() == EVERYTHING_REPLAYED
    for broker_id, offset in ((1, 10), (2, 7), (3, 3)):
        heartbeats.register(broker_id, is_fenced=False)
        heartbeats.touch(broker_id, is_fenced=False, metadata_offset=offset)
    assert heartbeats.lowest_active_offset() == 3
    heartbeats.touch(3, is_fenced=True, metadata_offset=3)
    assert heartbeats.lowest_active_offset() == 7
    heartbeats.begin_controlled_shutdown(2, 20)
    assert heartbeats.lowest_active_offset() == 10
    heartbeats.remove(1)
    assert heartbeats.lowest_active_offset() == EVERYTHING_REPLAYED


def test_sessions() -> None:
    heartbeats = BrokerHeartbeats(9_000)
    assert not heartbeats.has_valid_session(1, 5, 0)
    heartbeats.contact(1, 5, 1_000)
    heartbeats.contact(2, 6, 3_000)
    assert heartbeats.has_valid_session(1, 5, 10_000)
    assert not heartbeats.has_valid_session(1, 5, 10_001)
    assert not heartbeats.has_valid_session(1, 4, 1_000), "a session is that of one epoch"
    assert heartbeats.pop_expired(10_000) is None
    heartbeats.contact(1, 5, 5_000)
    assert heartbeats.pop_expired(20_000) == (2, 6), "the longest silent first"
    assert heartbeats.pop_expired(20_000) == (1, 5)
    assert heartbeats.pop_expired(20_000) is None
