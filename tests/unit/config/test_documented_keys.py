"""Every key is documented, and every key that klamm honours is read by code other than the tables and checks.

The documentation is what DescribeConfigs and `klamm configs` show; it says so if a key has no effect. A key counts as
read if its quoted name is in code that is neither the table nor a check of values, if a topic key that is read falls
back to it, if the coordinator's settings are named after it, or if `MemberSettings` reads it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from klamm._engine.config import config_keys, find_config_key
from klamm.coordinator.groups.config import GroupConfig

if TYPE_CHECKING:
    from klamm._engine.config import ConfigScope

ROOT: Final = Path(__file__).parents[3]
READERS: Final = ("rust", "python/klamm")
NO_READERS: Final = (
    "rust/config/src/",
    "rust/fuzz/",
    "python/klamm/config/rules.py",
    "python/klamm/config/broker_checks.py",
    "python/klamm/config/keys.py",
    "python/klamm/controller/configs/config_checks.py",
    "python/klamm/testing/",
)
"""Files that only describe or check values."""
BY_PATTERN: Final = {
    f"compression.{codec}.level": f"compression.{{}}.level ({codec})" for codec in ("gzip", "lz4", "zstd")
}
"""Keys whose names the engine composes: see `rust/replica/src/config.rs`."""
SETTINGS: Final = "rust/replica/src/config.rs"
MEMBER_SETTINGS: Final = "python/klamm/coordinator/groups/modern/settings.py"
"""Reads `group.KIND.NAME` and its bounds, with the kinds of its users."""
SHARE_SETTINGS: Final = "rust/engine/src/engine.rs"
"""Reads `group.share.NAME` and its bounds."""


def sources() -> dict[str, str]:
    found = (path for folder in READERS for path in (ROOT / folder).rglob("*") if path.suffix in (".rs", ".py"))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in found}
    return {
        name: text.split("#[cfg(test)]")[0]
        for name, text in texts.items()
        if not name.startswith(NO_READERS) and not name.endswith("tests.rs") and "/tests/" not in name
    }


@pytest.fixture(scope="module")
def read() -> frozenset[str]:
    """The keys that are read. Topics' keys count first, because they fall back to the nodes' values."""
    texts = sources()
    whole = "\n".join(texts.values())
    assert '"compression.{}.level"' in texts[SETTINGS]
    names = {key.name for scope in ("node", "topic") for key in config_keys(scope) if f'"{key.name}"' in whole}
    names |= BY_PATTERN.keys()
    for field in GroupConfig.__dataclass_fields__:
        if f".{field}" in whole:
            names.add(field.replace("_", "."))
    bounded = re.findall(r'_bounded\("([a-z.]+)"\)', texts[MEMBER_SETTINGS])
    kinds = re.findall(r'(?:MemberSettings|super\(\).__init__)\("([a-z]+)"', whole)
    assert bounded
    assert kinds
    names |= {f"group.{kind}.{bound}{name}" for kind in kinds for bound in ("", "min.", "max.") for name in bounded}
    share = re.findall(r'bounded\("([a-z.]+)"\)', texts[SHARE_SETTINGS])
    assert share
    names |= {f"group.share.{bound}{name}" for bound in ("", "min.", "max.") for name in share}
    inherited = {synonym for key in config_keys("topic") if key.name in names for synonym, _ in key.synonyms}
    return frozenset(names | inherited)


def test_every_honoured_key_is_read(read: frozenset[str]) -> None:
    honoured = {key.name for scope in ("node", "topic") for key in config_keys(scope) if key.is_honoured}
    assert sorted(honoured - read) == [], "read them, or move their documentation to config/not_honoured.rs"


def test_keys_of_missing_features_are_not_honoured() -> None:
    for name in ("unstable.api.versions.enable", "ssl.protocol"):
        key = find_config_key("node", name)
        assert key is not None
        assert not key.is_honoured


@pytest.mark.parametrize("scope", ["node", "topic", "group", "client-metrics"])
def test_the_documentation_of_every_key_says_whether_klamm_honours_it(scope: ConfigScope) -> None:
    for key in config_keys(scope):
        assert key.documentation.endswith("."), key.name
        assert key.documentation.endswith("This key has no effect in klamm yet.") is not key.is_honoured, key.name
