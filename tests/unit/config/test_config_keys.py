from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from klamm._engine.config import ConfigError, config_keys, find_config_key, format_config, parse_config

if TYPE_CHECKING:
    from klamm._engine.config import ConfigScope

SCOPES = cast("tuple[ConfigScope, ...]", ("node", "topic", "group", "client-metrics"))


@pytest.mark.parametrize("scope", SCOPES)
def test_every_key_can_be_looked_up(scope: ConfigScope) -> None:
    for key in config_keys(scope):
        found = find_config_key(scope, key.name)
        assert found is not None
        assert (found.name, found.scope, found.type_id) == (key.name, scope, key.type_id)


def test_a_key_has_every_field_of_describe_configs() -> None:
    key = find_config_key("topic", "retention.ms")
    assert key is not None
    assert (key.type, key.type_id, key.default, key.allowed) == ("LONG", 5, "604800000", "[-1,...]")
    assert key.synonyms == [
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", 3_600_000),
    ]
    assert key.documentation
    assert not key.is_sensitive


def test_update_mode_and_passwords() -> None:
    listeners = find_config_key("node", "listeners")
    password = find_config_key("node", "ssl.key.password")
    assert listeners is not None
    assert password is not None
    assert listeners.update_mode == "per-broker"
    assert password.is_sensitive


def test_values_become_python_values() -> None:
    assert parse_config("topic", "preallocate", "TRUE") is True
    assert parse_config("topic", "retention.ms", " -1 ") == -1
    assert parse_config("topic", "min.cleanable.dirty.ratio", "0.25") == 0.25
    assert parse_config("topic", "cleanup.policy", "compact, delete") == ["compact", "delete"]
    assert parse_config("topic", "compression.type", "zstd") == "zstd"
    assert format_config("topic", "retention.ms", "+0500") == "500"


def test_an_invalid_value_raises_a_value_error_with_the_allowed_ones() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value 1 for configuration segment\.bytes: .* 1048576"):
        parse_config("topic", "segment.bytes", "1")
    with pytest.raises(ValueError, match=r"Unknown topic config name: no\.such"):
        parse_config("topic", "no.such", "1")


def test_an_unknown_scope_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown scope 'user'"):
        config_keys(cast("ConfigScope", "user"))
