"""What is evidence that a broker has crashed, and what is not."""

from __future__ import annotations

import pytest

from klamm.controller.nodes.crash_detection import BrokerCrashDetection, Crashed, Probe, ProbeOutcome

EPOCH = 7
FIRST = Probe(1, EPOCH)
SECOND = Probe(1, EPOCH, is_repeated=True)
CONNECTION = 100
_A, _R, _U = ProbeOutcome.ACCEPTED, ProbeOutcome.REFUSED, ProbeOutcome.UNKNOWN


def watching(*, is_active: bool = True, answers: ProbeOutcome = _A) -> BrokerCrashDetection:
    """Broker 1, which has been probed once and has sent a heartbeat."""
    made = BrokerCrashDetection()
    assert made.on_brokers({1: EPOCH}, is_active=is_active) == [FIRST]
    assert made.on_probed(1, EPOCH, answers) == []
    made.on_heartbeat(CONNECTION, 1, EPOCH)
    return made


def test_a_lost_connection_and_two_refusals_are_a_crash() -> None:
    made = watching()
    assert made.on_closed(CONNECTION) == [FIRST]
    assert made.on_probed(1, EPOCH, _R) == [SECOND]
    assert made.on_probed(1, EPOCH, _R) == [Crashed(1, EPOCH)]


@pytest.mark.parametrize("outcomes", [[_A], [_U], [_R, _A], [_R, _U]])
def test_any_other_outcome_is_no_crash(outcomes: list[ProbeOutcome]) -> None:
    made = watching()
    made.on_closed(CONNECTION)
    effects = [made.on_probed(1, EPOCH, outcome) for outcome in outcomes]
    assert effects[-1] == []
    assert made.on_probed(1, EPOCH, _R) in ([SECOND], []), "counted from the start"


def test_a_heartbeat_on_a_new_connection_ends_the_suspicion() -> None:
    made = watching()
    made.on_closed(CONNECTION)
    assert made.on_probed(1, EPOCH, _R) == [SECOND]
    made.on_heartbeat(CONNECTION + 1, 1, EPOCH)
    assert made.on_probed(1, EPOCH, _R) == []


def test_closing_an_older_connection_is_no_evidence() -> None:
    made = watching()
    made.on_heartbeat(CONNECTION + 1, 1, EPOCH)
    assert made.on_closed(CONNECTION) == []
    assert made.on_closed(CONNECTION + 1) == [FIRST]


def test_connections_of_others_are_no_evidence() -> None:
    assert watching().on_closed(55) == []


def test_a_process_with_the_directories_of_an_unconnected_broker_replaces_it() -> None:
    made = watching()
    assert made.on_returned(1) == [], "the broker is connected: this is a copy of its folder"
    made.on_closed(CONNECTION)
    assert made.on_returned(1) == [Crashed(1, EPOCH, has_returned=True)]
    assert made.on_returned(2) == []
    made.on_heartbeat(CONNECTION + 1, 1, EPOCH)
    assert made.on_returned(1) == []


def test_an_inactive_controller_ends_no_session_for_a_restarted_process() -> None:
    made = watching(is_active=False)
    made.on_closed(CONNECTION)
    assert made.on_returned(1) == []


def test_a_listener_that_never_answered_this_controller_does_not_count() -> None:
    made = watching(answers=_R)
    assert made.on_closed(CONNECTION) == []
    assert made.on_brokers({1: EPOCH}, is_active=True) == [FIRST], "each image is a reason to look again"
    assert made.on_probed(1, EPOCH, _R) == []
    assert made.on_brokers({1: EPOCH}, is_active=True) == [FIRST]
    assert made.on_probed(1, EPOCH, _A) == []
    made.on_heartbeat(CONNECTION, 1, EPOCH)
    assert made.on_brokers({1: EPOCH}, is_active=True) == []


def test_an_active_controller_probes_brokers_without_a_connection() -> None:
    made = BrokerCrashDetection()
    assert made.on_brokers({1: EPOCH}, is_active=False) == [FIRST]
    assert made.on_probed(1, EPOCH, _A) == []
    assert made.on_brokers({1: EPOCH}, is_active=False) == []
    for _ in range(2):
        assert made.on_brokers({1: EPOCH}, is_active=True) == [FIRST]
        assert made.on_brokers({1: EPOCH}, is_active=True) == [], "one probe at a time"
        assert made.on_probed(1, EPOCH, _A) == []
    assert made.on_brokers({1: EPOCH}, is_active=True) == [FIRST]
    assert made.on_probed(1, EPOCH, _R) == [SECOND]
    assert made.on_probed(1, EPOCH, _R) == [Crashed(1, EPOCH)]


def test_only_the_active_controller_acts() -> None:
    made = watching(is_active=False)
    assert made.on_closed(CONNECTION) == []
    made = watching()
    assert made.on_closed(CONNECTION) == [FIRST]
    assert made.on_brokers({1: EPOCH}, is_active=False) == []
    assert made.on_probed(1, EPOCH, _R) == []


def test_evidence_of_an_earlier_registration_is_dropped() -> None:
    made = watching()
    made.on_closed(CONNECTION)
    assert made.on_brokers({1: EPOCH + 1}, is_active=True) == [Probe(1, EPOCH + 1)]
    assert made.on_probed(1, EPOCH, _R) == []
    assert made.on_probed(1, EPOCH, _R) == []
    made.on_heartbeat(CONNECTION, 1, EPOCH)
    assert made.on_closed(CONNECTION) == [], "a heartbeat of the earlier one"


def test_a_fenced_broker_is_not_watched() -> None:
    made = watching()
    assert made.on_brokers({}, is_active=True) == []
    assert made.on_closed(CONNECTION) == []


def test_a_heartbeat_before_the_broker_is_unfenced_counts_too() -> None:
    made = BrokerCrashDetection()
    made.on_heartbeat(CONNECTION, 1, EPOCH)
    assert made.on_brokers({1: EPOCH}, is_active=True) == [FIRST]
    assert made.on_probed(1, EPOCH, _A) == []
    assert made.on_closed(CONNECTION) == [FIRST]


def test_a_connection_belongs_to_one_broker_at_a_time() -> None:
    made = watching()
    made.on_heartbeat(CONNECTION, 2, EPOCH)
    assert made.on_closed(CONNECTION) == []
