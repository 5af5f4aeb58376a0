"""Every API that a node lists has a handler, although none is imported before its first request."""

from __future__ import annotations

from typing import Any

import pytest

from klamm._engine.metadata import Image
from klamm.broker.authorization import AllowAll
from klamm.broker.request import InlineHandler
from klamm.config import sources
from klamm.node.requests.handlers import BROKER_FAMILIES, CONTROLLER_FAMILIES, Handlers
from klamm.protocol.api_key import ApiKey
from klamm.protocol.apis import APIS


@pytest.fixture
def handlers() -> Handlers:
    unused: Any = object()

    class Controller:
        def __getattr__(self, name: str) -> object:
            return self

    controller: Any = Controller()
    return Handlers(
        sources.load(),
        "cluster",
        unused,
        Image,
        controller=controller,
        active_controller=controller,
        broker=lambda: controller,
        quorum=lambda: controller,
        raft=lambda: unused,
        authorizer=AllowAll(),
    )


@pytest.mark.parametrize("api_key", sorted(BROKER_FAMILIES))
def test_the_apis_of_a_broker(handlers: Handlers, api_key: int) -> None:
    found = handlers.find(api_key, on_controller=False)
    assert callable(found.handle if isinstance(found, InlineHandler) else found)
    assert handlers.find(api_key, on_controller=False) is found, "a handler keeps its state"


@pytest.mark.parametrize("api_key", sorted(CONTROLLER_FAMILIES))
def test_the_apis_of_a_controller(handlers: Handlers, api_key: int) -> None:
    found = handlers.find(api_key, on_controller=True)
    assert callable(found.handle if isinstance(found, InlineHandler) else found)


def test_the_table_and_the_handlers_agree(handlers: Handlers) -> None:
    assert BROKER_FAMILIES.keys() == {key for key, api in APIS.items() if api.on_broker == "python"}
    assert CONTROLLER_FAMILIES.keys() == {key for key, api in APIS.items() if api.on_controller == "python"}
    assert handlers.find(ApiKey.OFFSET_COMMIT, on_controller=True) is None
    assert handlers.find(ApiKey.BROKER_REGISTRATION, on_controller=False) is None
    assert handlers.find(ApiKey.VOTE, on_controller=False) is None


def test_a_broker_checks_config_changes_before_the_controller(handlers: Handlers) -> None:
    for api_key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        on_broker, on_controller = (handlers.find(api_key, on_controller=each) for each in (False, True))
        assert getattr(on_broker, "__qualname__", "").startswith("ConfigChangeHandlers.")
        name = getattr(on_controller, "__qualname__", "")
        # Each node sets the levels of its own loggers, also a controller.
        assert "operation_handler" in name if api_key == ApiKey.ALTER_CONFIGS else name.endswith("_at_controller")
