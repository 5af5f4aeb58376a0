"""AssignReplicasToDirs is grouped on the wire; both directions preserve its content."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages import directory_assignments as wire
from klamm.protocol.messages.registration import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from klamm.protocol.wire.codec import read, read_response, write, write_request

IDS = st.sampled_from([bytes([each]) * 16 for each in range(1, 4)])
ASSIGNMENTS = st.lists(st.tuples(IDS, IDS, st.integers(0, 3)), unique=True).map(tuple)


@given(ASSIGNMENTS)
def test_assignments_round_trip(assignments: tuple[tuple[bytes, bytes, int], ...]) -> None:
    request = AssignReplicasToDirsRequest(1, 2, assignments)
    body = write_request(wire.to_wire(request), 0)
    arrived = wire.from_wire(read(wire.DirectoriesRequest, 0, body))
    assert sorted(arrived.assignments) == sorted(assignments)
    assert (arrived.broker_id, arrived.broker_epoch) == (1, 2)
    codes = dict(zip(sorted(assignments), itertools.cycle([ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]), strict=False))
    answer = AssignReplicasToDirsResponse(partition_errors=tuple(codes[each] for each in arrived.assignments))
    back = read_response(wire.DirectoriesResponse, 0, write(wire.answer_to_wire(arrived, answer), 0))
    expected = tuple(codes[each] for each in assignments)
    assert wire.answer_from_wire(request, back) == AssignReplicasToDirsResponse(partition_errors=expected)


def test_top_level_errors_and_missing_partitions() -> None:
    request = AssignReplicasToDirsRequest(1, 2, ((b"d" * 16, b"t" * 16, 0),))
    failed = AssignReplicasToDirsResponse(ErrorCode.STALE_BROKER_EPOCH)
    assert wire.answer_from_wire(request, wire.answer_to_wire(request, failed)) == failed
    unanswered = wire.answer_from_wire(request, wire.DirectoriesResponse())
    assert unanswered.partition_errors == (ErrorCode.UNKNOWN_SERVER_ERROR,)
