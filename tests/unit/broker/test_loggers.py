"""Kafka's BROKER_LOGGER resources for klamm's loggers (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from klamm.broker import loggers
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.configs import AlterableConfig, AlterConfigsResource, ConfigOperation
from klamm.protocol.resource_types import ResourceType

SET, DELETE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND
PART = "klamm.broker.test_loggers"


@pytest.fixture(autouse=True)
def _levels_come_back() -> Iterator[None]:
    touched = [logging.getLogger(name) for name in ("klamm", PART)]
    before = [logger.level for logger in touched]
    yield
    for logger, level in zip(touched, before, strict=True):
        logger.setLevel(level)


def alter(*changes: tuple[str, str | None, int], node: str = "1", validate_only: bool = False) -> None:
    configs = tuple(AlterableConfig(*change) for change in changes)
    resource = AlterConfigsResource(ResourceType.BROKER_LOGGER, node, configs)
    loggers.alter(resource, 1, validate_only=validate_only)


def test_levels_are_set_inherited_and_unset() -> None:
    alter(("root", "ERROR", SET))
    assert (loggers.levels()["root"], loggers.levels()[PART]) == ("ERROR", "ERROR")
    assert logging.getLogger("klamm").level == logging.ERROR
    alter((PART, "TRACE", SET))
    assert (loggers.levels()["root"], loggers.levels()[PART]) == ("ERROR", "TRACE")
    alter((PART, None, DELETE))
    assert loggers.levels()[PART] == "ERROR"


def test_loggers_of_other_packages_are_not_accessible() -> None:
    logging.getLogger("somebody.else")
    assert {name.split(".")[0] for name in loggers.levels()} == {"root", "klamm"}
    assert "klamm" not in loggers.levels()


def test_validate_only_changes_nothing_and_a_wrong_change_stops_all() -> None:
    before = loggers.levels()
    alter((PART, "FATAL", SET), validate_only=True)
    with pytest.raises(KafkaError):
        alter((PART, "FATAL", SET), ("klamm.nobody", "INFO", SET))
    assert loggers.levels() == before


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("klamm.nobody", "INFO", SET), ErrorCode.INVALID_CONFIG),
        (("klamm.nobody", None, DELETE), ErrorCode.INVALID_CONFIG),
        (("klamm", "INFO", SET), ErrorCode.INVALID_CONFIG),
        ((PART, "LOUD", SET), ErrorCode.INVALID_CONFIG),
        ((PART, "info", SET), ErrorCode.INVALID_CONFIG),
        (("root", None, DELETE), ErrorCode.INVALID_REQUEST),
        ((PART, "INFO", APPEND), ErrorCode.INVALID_REQUEST),
        ((PART, "INFO", 9), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_refusals(change: tuple[str, str | None, int], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        alter(change)
    assert refused.value.code is code


@pytest.mark.parametrize("node", ["", "2", "one"])
def test_only_this_nodes_loggers_change(node: str) -> None:
    with pytest.raises(KafkaError) as refused:
        alter(("root", "INFO", SET), node=node)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
