"""Secrets of a configuration: they appear in no log, response or error message."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from klamm.admin.client import Client
from klamm.config.sources import embedded_default
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.node_process import NodeProcess

SECRET = "open-sesame"
BROKER = 4

IN_FILE = {
    "ssl.key.password": SECRET,
    "ssl.keystore.password": SECRET,
    "ssl.keystore.key": SECRET,
    "ssl.truststore.password": SECRET,
    "sasl.jaas.config": f'org.example.Module required username="me" password="{SECRET}";',
    "delegation.token.secret.key": SECRET,
    "listener.name.plaintext.ssl.keystore.password": SECRET,
    "listener.name.plaintext.plain.sasl.jaas.config": f'x required password="{SECRET}";',
    "ssl.keystore.pasword": SECRET,
    "my.plugin.password": SECRET,
}
DYNAMIC = {
    "listener.name.plaintext.ssl.truststore.password": SECRET,
    "listener.name.plaintext.ssl.key.password": SECRET,
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f'x required password="{SECRET}";',
}


def describe(client: Client, name: str) -> DescribeConfigsResponse:
    resources = (DescribeConfigsResource(BROKER, name),)
    request = DescribeConfigsRequest(resources, include_synonyms=True, include_documentation=True)
    return client.any.ask(request, DescribeConfigsResponse, 4)


def alter(client: Client, name: str, values: Mapping[str, str]) -> IncrementalAlterConfigsResponse:
    configs = tuple(AlterableConfig(key, value) for key, value in values.items())
    request = IncrementalAlterConfigsRequest((AlterConfigsResource(BROKER, name, configs),))
    return client.any.ask(request, IncrementalAlterConfigsResponse, 1)


def test_no_secret_is_printed(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", overrides=IN_FILE | {"klamm.log.level": "debug"})
    with node, Client(node.bootstrap) as client:
        for name, values in (("1", DYNAMIC), ("1", {"my.plugin.token": SECRET}), ("", {"nobody.knows": SECRET})):
            (answer,) = alter(client, name, values).responses
            assert answer.error_code == ErrorCode.NONE, answer
        wrong = alter(client, "1", {"ssl.keystore.password": SECRET, "num.io.threads": "many"})
        assert wrong.responses[0].error_code != ErrorCode.NONE
        answers = [describe(client, name) for name in ("1", "")]
        shown = {entry.name: entry for answer in answers for entry in answer.results[0].configs}
        for name in {*IN_FILE, *DYNAMIC, "my.plugin.token", "nobody.knows"}:
            assert (shown[name].value, shown[name].is_sensitive) == (None, True), name
        assert SECRET not in repr((answers, wrong))
        for flag in ("--all", "--json"):
            words = ["configs", "describe", "broker", "1", "--bootstrap", node.bootstrap, flag]
            command = [sys.executable, "-m", "klamm", *words]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
            assert "ssl.key.password" in done.stdout
            assert SECRET not in done.stdout + done.stderr
    with node:  # reads the configs from the metadata log
        pass
    said = node.output.read_text()
    assert SECRET not in said
    assert "ssl.keystore.pasword is ignored; did you mean ssl.keystore.password?" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("my.plugin.password", f"{SECRET}\\u12"),
        ("ssl.keystore.location.password", f"{SECRET}\\uzzzz"),
        ("num.io.threads", "many"),
    ],
)
def test_an_error_about_a_configuration_contains_no_secret(tmp_path: Path, name: str, value: str) -> None:
    file = tmp_path / "server.properties"
    given = embedded_default(tmp_path / "data", 0) | IN_FILE | {name: value}
    file.write_text("".join(f"{key}={text}\n" for key, text in given.items()))
    done = subprocess.run(
        [sys.executable, "-m", "klamm", "start", str(file)],
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "klamm: " in done.stderr
    assert SECRET not in done.stdout + done.stderr
