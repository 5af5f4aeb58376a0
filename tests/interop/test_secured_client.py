"""klamm's client with an Apache Kafka 4.3.1 that uses TLS and SASL: what works, and the error messages otherwise."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from klamm.admin import groups, topics
from klamm.admin.client import Client
from klamm.cli.main import run
from klamm.client import ClientError, ClientTimeoutError, ConfigError, KafkaClient, SecurityError
from tests.interop.secured_kafka import (
    PASSWORD,
    SESSION_MS,
    USER,
    SecuredKafka,
    by_plain,
    by_scram,
    of_the_quorum,
    running,
    trusting,
)
from tests.support.foreign import require
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

SHORTLY = {"default.api.timeout.ms": "2000", "fetch.max.wait.ms": "50"}
TOPIC = "secured"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    require("java", "mvn", "openssl")
    with running(tmp_path_factory.mktemp("secured")) as node:
        with Client(node.bootstrap) as admin:
            topics.create(admin, [TOPIC], partitions=4, replication_factor=1)
        yield node


def keys_of(node: SecuredKafka, way: str) -> tuple[str, dict[str, str]]:
    """The listener and the client keys of an authentication method."""
    files = node.files
    tls = trusting(node)
    return {
        "tls": ("TLS", tls),
        "tls-1.2": ("TLS", {**tls, "ssl.enabled.protocols": "TLSv1.2"}),
        "tls-texts": (
            "TLS",
            {
                "security.protocol": "ssl",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": files.authority.read_text().replace("\n", " "),
            },
        ),
        "any-name": ("STRANGER", {**tls, "ssl.endpoint.identification.algorithm": ""}),
        "mutual": ("MUTUAL", {**tls, "ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.store)}),
        "mutual-texts": (
            "MUTUAL",
            {
                **tls,
                "ssl.keystore.certificate.chain": files.certificate.read_text(),
                "ssl.keystore.key": files.key.read_text(),
            },
        ),
        "mutual-librdkafka": (
            "MUTUAL",
            {
                "security.protocol": "ssl",
                "ssl.ca.location": str(files.authority),
                "ssl.certificate.location": str(files.certificate),
                "ssl.key.location": str(files.key),
            },
        ),
        "scram-512": ("SCRAM", by_scram(node)),
        "scram-256": ("SCRAM", by_scram(node, "SCRAM-SHA-256")),
        "plain": ("PLAIN", by_plain()),
        "plain-librdkafka": (
            "PLAIN",
            {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            },
        ),
    }[way]


WAYS = (
    "tls",
    "tls-1.2",
    "tls-texts",
    "any-name",
    "mutual",
    "mutual-texts",
    "mutual-librdkafka",
    "scram-512",
    "scram-256",
    "plain",
    "plain-librdkafka",
)


@pytest.mark.parametrize("way", WAYS)
def test_records_and_administration_by_each_method(kafka: SecuredKafka, way: str) -> None:
    listener, keys = keys_of(kafka, way)
    values = [b"%s-%d" % (way.encode(), number) * 20 for number in range(5000)]
    with KafkaClient(kafka.address(listener), {**keys, "fetch.max.wait.ms": "50"}) as client:
        start = client.offsets(TOPIC, {0: -1})[0]
        client.produce(TOPIC, 0, None, pa.array(values, pa.binary()))
        client.flush()
        end = client.offsets(TOPIC, {0: -1})[0]
        found: list[bytes] = []
        while start < end:
            fetched = client.fetch(TOPIC, 0, start, end, columns=["value"])
            found += pa.record_batch(fetched)["value"].to_pylist()
            start = fetched.next_offset
    assert found == values
    with Client(kafka.address(listener), config=keys) as admin:
        assert [topic.name for topic in topics.topics(admin, [TOPIC])] == [TOPIC]
        assert groups.list_offsets(admin, {(TOPIC, 0): -1}) == {(TOPIC, 0): end}


def test_a_transaction_by_scram(kafka: SecuredKafka) -> None:
    keys = {**by_scram(kafka), "transactional.id": "secured"}
    with KafkaClient(kafka.address("SCRAM"), keys) as client:
        client.init_transactions()
        client.begin_transaction()
        client.produce(TOPIC, 1, None, pa.array([b"one"], pa.binary()))
        client.commit_transaction()
        # The record and the transaction's marker, which is written after EndTxn is answered.
        wait_until(lambda: client.offsets(TOPIC, {1: -1}) == {1: 2})


def refused_with(address: str, keys: Mapping[str, str]) -> tuple[str, float]:
    """The error of a client that must be rejected, also that of the admin client, and how many seconds it took."""
    began = time.monotonic()
    with KafkaClient(address, {**SHORTLY, **keys}) as client, pytest.raises(SecurityError) as refused:
        client.partitions(TOPIC)
    took_s = time.monotonic() - began
    with pytest.raises(SecurityError) as of_admin, Client(address, config=keys):
        pass
    assert str(of_admin.value) in str(refused.value), "both say the same"
    assert address in str(refused.value)
    assert PASSWORD not in str(refused.value)
    return str(refused.value), took_s


def test_a_wrong_password_fails_at_once(kafka: SecuredKafka) -> None:
    for listener, mechanism, keys in (
        ("SCRAM", "SCRAM-SHA-512", by_scram(kafka, password="wrong-word")),
        ("PLAIN", "PLAIN", by_plain("wrong-word")),
    ):
        error, took_s = refused_with(kafka.address(listener), {**keys, "default.api.timeout.ms": "60000"})
        assert f"refuses user '{USER}' by {mechanism}: look at sasl.jaas.config" in error
        assert "wrong-word" not in error
        assert took_s < 30, "it is not tried again until the time-out"
    pair = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": "wrong-word"}
    error, _ = refused_with(kafka.address("PLAIN"), {**pair, "security.protocol": "SASL_PLAINTEXT"})
    assert "look at sasl.password" in error


def test_a_wrong_password_of_a_producer_fails_at_once(kafka: SecuredKafka) -> None:
    keys = by_scram(kafka, password="wrong-word")
    with KafkaClient(kafka.address("SCRAM"), keys) as client, pytest.raises(SecurityError, match=r"sasl\.jaas\.config"):
        client.produce(TOPIC, 0, None, pa.array([b"x"], pa.binary()))


def test_an_unsupported_mechanism(kafka: SecuredKafka) -> None:
    error, _ = refused_with(kafka.address("PLAIN"), {**by_scram(kafka), "security.protocol": "SASL_PLAINTEXT"})
    assert "it does not offer SASL mechanism SCRAM-SHA-512, only PLAIN" in error


def test_certificates_that_are_not_trusted(kafka: SecuredKafka) -> None:
    tls = trusting(kafka)
    error, _ = refused_with(kafka.address("TLS"), {**tls, "ssl.truststore.location": str(kafka.files.other_authority)})
    assert f"not signed by any of the authorities of ssl.truststore.location={kafka.files.other_authority}" in error
    error, _ = refused_with(kafka.address("TLS"), {"security.protocol": "SSL"})
    assert "the authorities that this machine trusts (ssl.truststore.location is not set)" in error
    error, _ = refused_with(kafka.address("STRANGER"), tls)
    assert "is not for 127.0.0.1" in error
    assert "elsewhere.example" in error
    assert "ssl.endpoint.identification.algorithm" in error
    error, _ = refused_with(kafka.address("EXPIRED"), tls)
    assert "has expired" in error


def error_in_time(address: str, keys: Mapping[str, str]) -> str:
    """The error of a client within its timeout."""
    began = time.monotonic()
    with KafkaClient(address, {**SHORTLY, **keys}) as client, pytest.raises(ClientError) as refused:
        client.partitions(TOPIC)
    assert time.monotonic() - began < 30
    assert PASSWORD not in str(refused.value)
    return str(refused.value)


def test_a_client_certificate_that_is_missing(kafka: SecuredKafka) -> None:
    error = error_in_time(kafka.address("MUTUAL"), trusting(kafka))
    assert "client's certificate" in error


def test_listeners_of_another_protocol(kafka: SecuredKafka) -> None:
    plaintext = kafka.bootstrap
    error = error_in_time(kafka.address("TLS"), {})
    assert "TLS" in error
    assert "security.protocol" in error
    error = error_in_time(plaintext, trusting(kafka))
    assert "security.protocol must be PLAINTEXT or SASL_PLAINTEXT" in error
    error = error_in_time(kafka.address("PLAIN"), {})
    assert "is PLAINTEXT the security.protocol of its listener" in error
    error = error_in_time(plaintext, by_plain())
    assert "its listener does not use SASL: is its security.protocol PLAINTEXT?" in error
    error = error_in_time(kafka.address("TLS"), by_scram(kafka))
    assert "its listener does not use SASL: is its security.protocol SSL?" in error
    error = error_in_time(kafka.address("SCRAM"), trusting(kafka))
    assert "is SSL the security.protocol of its listener" in error


def test_a_session_is_renewed_before_it_ends(kafka: SecuredKafka) -> None:
    keys = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        # A closed connection would fail the call.
        "retries": "0",
        "fetch.max.wait.ms": "50",
        "linger.ms": "0",
    }
    address = kafka.address("SHORT")
    count = 0
    with KafkaClient(address, keys) as client, Client(address, config=keys) as admin:
        start = client.offsets(TOPIC, {2: -1})[2]
        until = time.monotonic() + 2 * SESSION_MS / 1000
        while time.monotonic() < until:
            client.produce(TOPIC, 2, None, pa.array([b"%d" % count], pa.binary()))
            client.flush()
            count += 1
            assert client.offsets(TOPIC, {2: -1})[2] == start + count
            assert groups.list_offsets(admin, {(TOPIC, 2): -1}) == {(TOPIC, 2): start + count}
            time.sleep(0.05)
    assert count > 3


def test_requests_under_way_end_before_a_producers_session_does(kafka: SecuredKafka) -> None:
    keys = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "linger.ms": "0",
        "batch.size": "4096",
        "buffer.memory": "262144",
        "fetch.max.wait.ms": "50",
    }
    total = 0
    with KafkaClient(kafka.address("SHORT"), keys) as client:
        start = client.offsets(TOPIC, {3: -1})[3]
        until = time.monotonic() + 2 * SESSION_MS / 1000
        while time.monotonic() < until:
            client.produce(TOPIC, 3, None, pa.array([b"x" * 500] * 200, pa.binary()))
            total += 200
        client.flush()
        assert client.offsets(TOPIC, {3: -1})[3] == start + total, "each once"


def test_nothing_shows_a_secret(kafka: SecuredKafka) -> None:
    client = KafkaClient(kafka.address("SCRAM"), by_scram(kafka))
    assert PASSWORD not in repr(client)
    assert PASSWORD not in str(client)
    with client:
        client.topics()
    for wrong in (
        {"sasl.jaas.config": f'A required username="x" password="{PASSWORD}"'},
        {"sasl.jaas.config": f'A.PlainLoginModule required username="x" password="{PASSWORD}";'},
        {"ssl.keystore.key": PASSWORD, "ssl.keystore.certificate.chain": PASSWORD},
        {"ssl.key.password": PASSWORD},
        {"ssl.truststore.password": PASSWORD},
        {"ssl.truststore.certificates": PASSWORD},
        {"sasl.pasword": PASSWORD},
    ):
        keys = {**by_scram(kafka), **wrong}
        if "ssl.truststore.certificates" in wrong:
            del keys["ssl.truststore.location"]
        with pytest.raises(ConfigError) as refused:
            KafkaClient("localhost:1", keys)
        assert PASSWORD not in str(refused.value)
        with pytest.raises(ClientError) as of_admin:
            Client("localhost:1", config=keys)
        assert PASSWORD not in str(of_admin.value)


def test_a_store_of_java_is_converted_by_the_command_in_the_message(kafka: SecuredKafka, tmp_path: Path) -> None:
    """The command is extracted from the error message and run, for JKS and PKCS12."""
    require("keytool", "openssl")
    for kind in ("JKS", "PKCS12"):
        store = tmp_path / f"trust.{kind}"
        importing = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(kafka.files.authority)]
        stored = ["-keystore", str(store), "-storetype", kind, "-storepass", "changeit"]
        subprocess.run(["keytool", *importing, *stored], check=True, capture_output=True, timeout=120)
        for keys in ({"ssl.truststore.location": str(store)}, {"ssl.truststore.type": kind}):
            with pytest.raises(ConfigError, match="only PEM") as refused:
                KafkaClient("localhost:1", {"security.protocol": "SSL", **keys})
        command = str(refused.value).split("`")[1].replace("STORE", str(store))
        subprocess.run(command, shell=True, check=True, cwd=tmp_path, input=b"changeit\n", timeout=120)
        keys = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "truststore.pem")}
        with KafkaClient(kafka.address("TLS"), keys) as client:
            assert TOPIC in client.topics()


def test_an_encrypted_key_is_rejected_with_a_remedy(kafka: SecuredKafka, tmp_path: Path) -> None:
    encrypted = tmp_path / "encrypted.pem"
    words = ["openssl", "pkcs8", "-topk8", "-in", str(kafka.files.key), "-out", str(encrypted), "-passout", "pass:x"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    keys = {
        **trusting(kafka),
        "ssl.keystore.key": encrypted.read_text(),
        "ssl.keystore.certificate.chain": kafka.files.certificate.read_text(),
        "ssl.key.password": "x",
    }
    with pytest.raises(ConfigError, match=r"its private key is encrypted, .* `openssl pkcs8 -in KEY -out key\.pem`"):
        KafkaClient("localhost:1", keys)


def test_a_silent_broker_times_out(kafka: SecuredKafka) -> None:
    """A server that accepts connections but sends nothing delays the TLS handshake at most by the setup timeout."""
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        keys = {**trusting(kafka), **SHORTLY, "socket.connection.setup.timeout.ms": "300"}
        with KafkaClient(address, keys) as client, pytest.raises(ClientTimeoutError, match="the TLS handshake"):
            client.partitions(TOPIC)


def properties(folder: Path, keys: Mapping[str, str]) -> Path:
    file = folder / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return file


def test_the_command_line_takes_a_file_of_properties(kafka: SecuredKafka, tmp_path: Path) -> None:
    file = properties(tmp_path, by_scram(kafka))
    command = [sys.executable, "-m", "klamm", "topics", "list", "--bootstrap", kafka.address("SCRAM")]
    done = subprocess.run(
        [*command, "--command-config", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert TOPIC in done.stdout


def test_commands_about_the_quorum_take_it(
    kafka: SecuredKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = ["--bootstrap-controller", kafka.address("QUORUM")]
    secured = [*controller, "--command-config", str(properties(tmp_path, of_the_quorum(kafka)))]
    for command in (["tail", "--type", "Topic"], ["at", "end"], ["diff", "0", "end"], ["why", f"{TOPIC}-0"]):
        assert run(["metadata", *command, *secured]) == 0, command
        assert TOPIC in capsys.readouterr().out, command
    assert run(["quorum", "doctor", *secured]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    assert run(["quorum", "doctor", *controller]) == 1
    assert "if it has TLS or SASL, --command-config says how" in " ".join(capsys.readouterr().out.split())


def test_a_wrong_password_for_the_quorum(
    kafka: SecuredKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["--command-config", str(properties(tmp_path, of_the_quorum(kafka, "wrong-word")))]
    for command in (["metadata", "at"], ["quorum", "doctor"]):
        assert run([*command, "--bootstrap-controller", kafka.address("QUORUM"), *wrong]) == 1
        error = "".join(capsys.readouterr())
        assert f"refuses user '{USER}' by PLAIN: look at sasl.jaas.config" in error
        assert "majority-lost" not in error
        assert "wrong-word" not in error
