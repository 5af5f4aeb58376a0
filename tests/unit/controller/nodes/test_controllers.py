"""Registration of controllers (KIP-919)."""

from __future__ import annotations

from tests.unit.controller.cluster import Cluster, uuid

from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import RegisterControllerRecord
from klamm.protocol.messages.registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Listener,
    SupportedFeature,
)


def registration(incarnation: int) -> ControllerRegistrationRequest:
    listeners = (Listener("CONTROLLER", "host", 9093),)
    return ControllerRegistrationRequest(
        3, uuid(incarnation), listeners, (SupportedFeature("metadata.version", 7, 30),)
    )


def test_the_last_registration_of_an_id_counts() -> None:
    cluster = Cluster()
    for incarnation in (1, 2):
        start = len(cluster.log)
        assert cluster.ask(registration(incarnation)) == ControllerRegistrationResponse()
        [record] = cluster.records(start)
        assert isinstance(record, RegisterControllerRecord)
        assert not record.zk_migration_ready
        found = cluster.image.controller(3)
        assert found is not None
        assert found.incarnation_id == uuid(incarnation)
        assert [(each.name, each.host, each.port) for each in found.endpoints] == [("CONTROLLER", "host", 9093)]
        assert [(each.name, each.level_min, each.level_max) for each in found.features] == [("metadata.version", 7, 30)]


def test_registration_needs_metadata_version_15() -> None:
    cluster = Cluster({"metadata.version": 14})
    start = len(cluster.log)
    assert cluster.ask(registration(1)).error_code is ErrorCode.UNSUPPORTED_VERSION
    assert cluster.records(start) == []


def test_an_inactive_controller_rejects_registrations() -> None:
    cluster = Cluster()
    cluster.controller.on_not_leader(cluster.now_ms)
    assert cluster.ask(registration(1)).error_code is ErrorCode.NOT_CONTROLLER
