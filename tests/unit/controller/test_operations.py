"""Each operation of the controller is registered once, in the module that its key names."""

from __future__ import annotations

import pytest

from klamm.controller.operations import MODULES, operation_of, operations_in
from klamm.protocol.api_key import ApiKey
from klamm.protocol.apis import APIS


@pytest.mark.parametrize("module", MODULES)
def test_a_module_registers_its_listed_operations(module: str) -> None:
    assert operations_in(module).keys() == set(MODULES[module])


def test_an_operation_is_found_by_its_key() -> None:
    for keys in MODULES.values():
        for key in keys:
            found = operation_of(key)
            assert found is not None
            assert found.api_key is key
            assert APIS[key].on_controller == "python"
    assert operation_of(ApiKey.PRODUCE) is None


def test_messages_are_of_the_operations_own_api() -> None:
    for module in MODULES:
        for key, one in operations_in(module).items():
            messages = (one.request, one.response) if one.wire is None else (one.wire.request, one.wire.response)
            assert [message.API_KEY for message in messages] == [key, key]  # type: ignore[attr-defined]
