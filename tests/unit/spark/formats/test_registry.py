"""The registry's client, with a server of Confluent's REST paths."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.unit.spark.formats.registry_server import FakeRegistry, serving

from klamm.spark.formats import registry as module
from klamm.spark.formats.registry import (
    Registry,
    RegistryError,
    RegistryOptions,
    UnknownSchemaError,
    UnknownSubjectError,
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(module, "_SCHEMAS", {})
    monkeypatch.setattr(module, "_PAUSE_S", 0)
    with serving() as running:
        yield running


def client(fake: FakeRegistry, **options: str) -> Registry:
    return Registry(RegistryOptions((fake.url,), **options))


def test_a_schema_is_fetched_once(fake: FakeRegistry) -> None:
    number = fake.register("a-value", '"long"')
    assert client(fake).by_id(number).text == '"long"'
    assert client(fake).by_id(number).kind == "AVRO"
    assert fake.asked == [f"/schemas/ids/{number}"]


def test_the_latest_of_a_subject_with_its_references_in_order(fake: FakeRegistry) -> None:
    fake.register("inner", '"string"')
    fake.register("inner", '"bytes"')
    fake.register("middle", '"int"', references=[{"name": "inner.avsc", "subject": "inner", "version": 1}])
    both = [
        {"name": "middle.avsc", "subject": "middle", "version": 1},
        {"name": "inner.avsc", "subject": "inner", "version": 1},
    ]
    fake.register("a b/c", '"float"')
    fake.register("a b/c", '"double"', references=both)
    found = client(fake).latest("a b/c")
    assert found.text == '"double"'
    assert found.references == (("inner.avsc", '"string"'), ("middle.avsc", '"int"'))


def test_circular_references_end(fake: FakeRegistry) -> None:
    fake.register("a", '"int"', references=[{"name": "a.avsc", "subject": "a", "version": 1}])
    assert client(fake).latest("a").references == (("a.avsc", '"int"'),)


def test_a_temporary_failure_is_retried(fake: FakeRegistry) -> None:
    fake.failures_left = 2
    assert client(fake).by_id(fake.register("a", '"int"')).text == '"int"'


def test_another_address_is_used_if_one_is_down(fake: FakeRegistry) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        down = f"http://127.0.0.1:{closed.getsockname()[1]}"
        number = fake.register("a", '"int"')
        assert Registry(RegistryOptions((down, fake.url + "/"))).by_id(number).text == '"int"'
        with pytest.raises(RegistryError, match=rf"option 'schema\.registry\.url' is '{down}': schema 5 cannot be"):
            Registry(RegistryOptions((down,))).by_id(5)


def test_missing_schemas_are_named(fake: FakeRegistry) -> None:
    with pytest.raises(UnknownSchemaError, match=r"the registry has no schema 77 .*schema\.registry\.url.*http"):
        client(fake).by_id(77)
    with pytest.raises(UnknownSubjectError, match=r"schema\.registry\.url.*the schema of subject 'x-value'"):
        client(fake).latest("x-value")
    number = fake.register("a", '"int"', references=[{"name": "b", "subject": "b", "version": 3}])
    with pytest.raises(UnknownSubjectError, match=rf"version 3 of subject 'b', which schema {number} refers to"):
        client(fake).by_id(number)
    fake.schemas[number] = {"schema": 5}
    with pytest.raises(RegistryError, match="without its text: is this a schema registry"):
        client(fake).by_id(number)


def test_credentials_come_from_options_or_the_address_and_are_never_shown(fake: FakeRegistry) -> None:
    fake.user_info = "user:secret"
    number = fake.register("a", '"int"')
    assert client(fake, user_info="user:secret").by_id(number).text == '"int"'
    in_address = fake.url.replace("//", "//user:secret@")
    assert Registry(RegistryOptions((in_address,))).by_id(number).text == '"int"'
    wrong = RegistryOptions((fake.url.replace("//", "//user:mistake@"),))
    with pytest.raises(RegistryError, match=r"refused .* \(401 Unauthorized\).*basic\.auth\.user\.info") as refused:
        Registry(wrong).by_id(number)
    assert "mistake" not in str(refused.value)
    assert "mistake" not in repr(RegistryOptions(("http://x",), user_info="user:mistake"))
