"""A node without an authorizer and without credentials gives the same responses about them as Apache Kafka."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import SecurityDisabledError

from klamm.config import sources
from klamm.formats import storage
from tests.support.node_process import NodeProcess

EVERY_RESOURCE = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
EVERY_ACL = ACLFilter(None, "*", ACLOperation.ANY, ACLPermissionType.ANY, EVERY_RESOURCE)


def test_acls_are_disabled(bootstrap: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        with pytest.raises(SecurityDisabledError, match="No Authorizer is configured on the broker"):
            client.describe_acls(EVERY_ACL)
    finally:
        client.close()


def test_there_are_no_scram_credentials(admin: AdminClient) -> None:
    assert admin.describe_user_scram_credentials().result(30) == {}
    with pytest.raises(KafkaException) as refused:
        admin.describe_user_scram_credentials(["bob"])["bob"].result(30)
    assert refused.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_credentials_of_a_format_are_listed_without_their_secrets(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data")
    file = tmp_path / "server.properties"
    given = sources.embedded_default(node.data, node.port)
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    command = [sys.executable, "-m", "klamm", "storage", "format", "-c", str(file), "-t", storage.random_cluster_id()]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        command += ["--add-scram", f"{mechanism}=[name=alice,iterations=8192,password=secret]"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        [(user, described)] = admin.describe_user_scram_credentials().result(30).items()
    assert user == "alice"
    found = [(each.mechanism.name, each.iterations) for each in described.scram_credential_infos]
    assert found == [("SCRAM_SHA_256", 8192), ("SCRAM_SHA_512", 8192)]
