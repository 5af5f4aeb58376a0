"""What clients of consumer groups may send, but should not: it concerns their own group alone."""

from __future__ import annotations

from klamm.protocol.errors import ErrorCode

from .consumer_room import ConsumerRoom

NONE = ErrorCode.NONE


def test_a_member_that_joins_again_with_another_instance_id_gives_up_the_first() -> None:
    room = ConsumerRoom()
    room.joined("a", instance_id="first")
    again = room.joined("a", instance_id="second")
    assert room.consumers.static_members == {"second": "a"}
    assert room.reloaded().consumers.static_members == {"second": "a"}
    assert again.leave().error_code is NONE
    assert room.consumers.static_members == {}
    assert room.consumer("b", instance_id="first").join().error_code is NONE
