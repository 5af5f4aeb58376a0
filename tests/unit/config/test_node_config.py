from __future__ import annotations

from pathlib import Path

import pytest

from klamm.config import rules, sources
from klamm.config.listeners import Listener
from klamm.config.node_config import NodeConfig, NodeConfigError

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    "log.dirs": "/tmp/kraft-combined-logs",
}
"""As in Apache Kafka's server.properties."""


def combined(**changes: str | None) -> dict[str, str]:
    """The combined node with changes: `node_id="2"` sets a key, None removes it."""
    given = COMBINED | {name.replace("_", "."): value for name, value in changes.items()}
    return {name: value for name, value in given.items() if value is not None}


def refusal(given: dict[str, str]) -> str:
    with pytest.raises(NodeConfigError) as caught:
        rules.checked(given)
    return str(caught.value)


def test_apache_kafkas_server_properties() -> None:
    config = rules.checked(COMBINED)
    assert config.roles == {"broker", "controller"}
    assert (config.node_id, config.integer("broker.id")) == (1, 1)
    assert config.client_listeners == (Listener("PLAINTEXT", "PLAINTEXT", "", 9092),)
    assert config.controller_listeners == (Listener("CONTROLLER", "PLAINTEXT", "", 9093),)
    assert config.advertised_brokers == (Listener("PLAINTEXT", "PLAINTEXT", "localhost", 9092),)
    assert config.advertised_controllers == (Listener("CONTROLLER", "PLAINTEXT", "localhost", 9093),)
    assert config.log_dirs == (Path("/tmp/kraft-combined-logs"),)
    assert config.metadata_log_dir == config.log_dirs[0]
    assert config.bootstrap_controllers == (("localhost", 9093),)
    rules.check_supported(config)


def test_values_come_with_their_type_and_default() -> None:
    config = rules.checked(combined(num_partitions="3"))
    assert config.integer("num.partitions") == 3
    assert config.boolean("auto.create.topics.enable") is True
    assert config.text("klamm.flush.before.ack") == "all"
    assert config.optional_text("broker.rack") is None
    assert config.entries("log.cleanup.policy") == ["delete"]
    with pytest.raises(TypeError, match=r"broker\.rack"):
        config.text("broker.rack")
    with pytest.raises(KeyError):
        config.value("no.such.key")


def test_every_wrong_value_is_named_at_once() -> None:
    complaint = refusal(combined(num_partitions="0", log_segment_bytes="1k", process_roles=None))
    assert complaint.splitlines() == [
        "Invalid value 0 for configuration num.partitions: Value must be at least 1",
        "Invalid value 1k for configuration log.segment.bytes: Not a number of type INT",
        'Missing required configuration "process.roles", which has no default value',
    ]


def test_topics_take_their_defaults_from_the_node() -> None:
    defaults = rules.checked(
        combined(log_retention_hours="1", log_roll_ms="5000", message_max_bytes="2000", log_segment_bytes="01048576")
    ).topic_defaults()
    assert defaults["retention.ms"] == "3600000"
    assert defaults["segment.ms"] == "5000"
    assert defaults["max.message.bytes"] == "2000"
    assert defaults["segment.bytes"] == "1048576"
    assert defaults["cleanup.policy"] == "delete"
    assert defaults["flush.ms"] == "9223372036854775807"
    assert defaults["min.cleanable.dirty.ratio"] == "0.5"
    assert rules.checked(combined(log_retention_minutes="-1")).topic_defaults()["retention.ms"] == "-1"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"broker_id": "2"}, "broker.id=2 and node.id=1"),
        ({"log_roll_ms": "0"}, "log.roll.ms comes to 0"),
        ({"log_retention_ms": "0"}, "log.retention.ms comes to 0"),
        ({"replica_fetch_wait_max_ms": "40000"}, "replica.fetch.wait.max.ms=40000"),
        ({"queued_max_request_bytes": "5"}, "queued.max.request.bytes=5"),
        ({"max_connections_per_ip": "0"}, "max.connections.per.ip=0"),
        ({"max_connections_per_ip_overrides": "somewhere"}, "Invalid value somewhere"),
        ({"log_cleaner_threads": "200"}, "log.cleaner.dedupe.buffer.size=134217728"),
        ({"group_consumer_session_timeout_ms": "70000"}, "group.consumer.max.session.timeout.ms=60000"),
        ({"connections_max_idle_ms": "50"}, "connection.failed.authentication.delay.ms=100"),
        ({"controller_quorum_bootstrap_servers": None}, "controller.quorum.bootstrap.servers must name"),
        ({"controller_quorum_voters": "2@localhost:9093"}, "node.id=1 is a controller"),
        ({"controller_listener_names": "OTHER"}, "controller.listener.names has OTHER"),
        ({"listeners": "CONTROLLER://:9093", "advertised_listeners": None}, "no listener is left for clients"),
        ({"inter_broker_listener_name": "SSL"}, "inter.broker.listener.name comes to SSL"),
        ({"inter_broker_listener_name": "NONE"}, "Invalid value NONE for configuration inter.broker.listener.name"),
        ({"security_inter_broker_protocol": "PLAINTEXT"}, "Only one of inter.broker.listener.name"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:9092"}, "PLAINTEXT://0.0.0.0:9092, to which no client"),
        ({"advertised_listeners": "PLAINTEXT://a:1,SSL://a:2"}, "advertised.listeners has PLAINTEXT, SSL"),
        ({"process_roles": "broker"}, "controller.listener.names has CONTROLLER"),
        ({"process_roles": "controller"}, "process.roles=controller, but PLAINTEXT://:9092"),
        (
            {
                "process_roles": "controller",
                "listeners": "CONTROLLER://:9093",
                "inter_broker_listener_name": "CONTROLLER",
            },
            "inter.broker.listener.name=CONTROLLER is in controller.listener.names",
        ),
        (
            {
                "process_roles": "controller",
                "listeners": "CONTROLLER://:9093",
                "advertised_listeners": "CONTROLLER://0.0.0.0:9093",
            },
            "CONTROLLER://0.0.0.0:9093, to which no client",
        ),
        (
            {"process_roles": "broker", "listeners": "PLAINTEXT://:9092", "controller_quorum_auto_join_enable": "true"},
            "controller.quorum.auto.join.enable=true needs the controller role",
        ),
        (
            {
                "process_roles": "broker",
                "listeners": "PLAINTEXT://:9092",
                "advertised_listeners": "PLAINTEXT://here:9092",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT",
            },
            "controller.listener.names has CONTROLLER, which listener.security.protocol.map=PLAINTEXT:PLAINTEXT",
        ),
        (
            {
                "process_roles": "broker",
                "listeners": "PLAINTEXT://:9092",
                "advertised_listeners": "PLAINTEXT://here:9092",
                "controller_quorum_voters": "1@localhost:9093",
            },
            "node.id=1 is in controller.quorum.voters, but process.roles has no controller",
        ),
        ({"early_start_listeners": "NOPE"}, "early.start.listeners has NOPE"),
        ({"group_coordinator_rebalance_protocols": "consumer"}, "must contain classic"),
        ({"cordoned_log_dirs": "/elsewhere"}, "cordoned.log.dirs has /elsewhere"),
        ({"listener_security_protocol_map": "PLAINTEXT:TLS"}, "'TLS' is no security protocol"),
        ({"listeners": "PLAINTEXT:9092"}, "'PLAINTEXT:9092' is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "share port 9092"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "2 are named PLAINTEXT"),
        ({"listeners": "EXTERNAL://:9092,CONTROLLER://:9093"}, "listener EXTERNAL has no security protocol"),
        ({"listeners": "PLAINTEXT://:70000,CONTROLLER://:9093"}, "port 70000"),
    ],
)
def test_contradicting_keys_are_rejected(changes: dict[str, str | None], complaint: str) -> None:
    assert complaint in refusal(combined(**changes))


def test_two_listeners_share_a_port_with_an_address_of_each_family() -> None:
    config = rules.checked(
        combined(
            listeners="PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092,CONTROLLER://:9093",
            advertised_listeners="PLAINTEXT://127.0.0.1:9092",
        )
    )
    assert str(config.listeners[1]) == "SSL://[::1]:9092"


def test_an_unmapped_controller_listener_is_plaintext_without_tls() -> None:
    given = combined(listener_security_protocol_map=None)
    assert rules.checked(given).controller_listeners[0].protocol == "PLAINTEXT"
    given["listeners"] += ",SSL://:9094"
    assert "listener CONTROLLER has no security protocol" in refusal(given)


def test_the_advertised_address_defaults_to_the_listener() -> None:
    listeners = "PLAIN://127.0.0.1:19092,CONTROLLER://127.0.0.1:0"
    config = sources.load(
        overrides=[
            f"listeners={listeners}",
            "listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name=PLAIN",
        ]
    )
    assert config.advertised_brokers == (Listener("PLAIN", "PLAINTEXT", "127.0.0.1", 19092),)
    with pytest.raises(NodeConfigError, match="to which no client can connect"):
        sources.load(overrides=["listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:0"])


def test_an_open_controller_listener_is_advertised_as_its_voter() -> None:
    config = rules.checked(
        combined(
            advertised_listeners="PLAINTEXT://localhost:9092",
            controller_quorum_voters="1@here:19093",
            controller_quorum_bootstrap_servers=None,
        )
    )
    assert config.voters == {1: ("here", 19093)}
    assert config.advertised_controllers == (Listener("CONTROLLER", "PLAINTEXT", "here", 19093),)


def test_a_broker_alone_and_a_controller_alone() -> None:
    broker = rules.checked(
        combined(
            process_roles="broker", listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://localhost:9092"
        )
    )
    assert broker.controller_listeners == ()
    controller = rules.checked(
        combined(process_roles="controller", listeners="CONTROLLER://localhost:9093", advertised_listeners=None)
    )
    assert controller.client_listeners == ()
    assert (broker.partition_dirs, controller.partition_dirs) == (broker.log_dirs, ())
    for config in (broker, controller):
        rules.check_supported(config)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"listeners": "SSL://:9092,CONTROLLER://:9093", "inter_broker_listener_name": "SSL"},
            "speaks SSL: TLS and SASL",
        ),
        ({"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}, "authorization"),
        ({"remote_log_storage_system_enable": "true"}, "tiered storage"),
    ],
)
def test_unsupported_features_are_rejected(changes: dict[str, str | None], complaint: str) -> None:
    config = rules.checked(combined(advertised_listeners=None, **changes))
    with pytest.raises(NodeConfigError, match=complaint) as caught:
        rules.check_supported(config)
    assert "yet" in str(caught.value)


def test_warnings() -> None:
    given = combined(num_partition="3", broker_heartbeat_interval_ms="5000", totally_unknown="x")
    given["listener.name.plaintext.ssl.key.password"] = "x"
    assert list(rules.warnings(rules.checked(given))) == [
        "unknown configuration num.partition is ignored; did you mean num.partitions?",
        "unknown configuration totally.unknown is ignored",
        "listener PLAINTEXT://:9092 is open to every network that this machine is on, without authentication",
        "listener CONTROLLER://:9093 is open to every network that this machine is on, without authentication",
        "broker.heartbeat.interval.ms=5000 should be at most half of broker.session.timeout.ms=9000",
    ]


def test_keys_that_a_separate_broker_ignores_are_reported() -> None:
    given = combined(
        process_roles="broker",
        listeners="PLAINTEXT://localhost:9092",
        advertised_listeners=None,
        controller_listener_names="CONTROLLER,OTHER",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT",
        num_partitions="3",
    )
    assert list(rules.warnings(rules.checked(given))) == [
        "a broker uses the first of controller.listener.names, CONTROLLER, and not OTHER",
        "num.partitions counts on controllers, who create topics: set it there as well",
    ]


def test_keys_without_effect_are_listed() -> None:
    config = rules.checked(combined(num_network_threads="3", log_segment_bytes="1073741824"))
    assert rules.without_effect(config) == ["num.network.threads"]


def test_listener_keys_are_known_with_and_without_a_mechanism() -> None:
    assert rules.is_known("listener.name.external.ssl.keystore.location")
    assert rules.is_known("listener.name.external.scram-sha-256.sasl.jaas.config")
    assert not rules.is_known("listener.name.external.no.such.key")
    assert not rules.is_known("no.such.key")


class TestSources:
    def test_without_a_file_the_node_listens_on_localhost(self) -> None:
        config = sources.load()
        assert config.log_dirs == (Path("klamm-data"),)
        assert [str(listener) for listener in config.listeners] == [
            "PLAINTEXT://localhost:9092",
            "CONTROLLER://localhost:0",
        ]
        assert config.integer("offsets.topic.replication.factor") == 1
        assert list(rules.warnings(config)) == []
        rules.check_supported(config)

    def test_data_and_port(self) -> None:
        config = sources.load(data=Path("/elsewhere"), port=19092)
        assert config.all_dirs == (Path("/elsewhere"),)
        assert config.advertised_brokers[0].port == 19092

    def test_a_file_then_the_environment_then_overrides(self, tmp_path: Path) -> None:
        file = write(tmp_path, combined(num_partitions="1", message_max_bytes="1", log_retention_hours="1"))
        config = sources.load(
            file,
            environment={"KAFKA_MESSAGE_MAX_BYTES": "2", "KAFKA_LOG_RETENTION_HOURS": "2", "KAFKA_HEAP_OPTS": "-Xmx1G"},
            overrides=["log.retention.hours = 3"],
        )
        assert [config.integer(name) for name in ("num.partitions", "message.max.bytes", "log.retention.hours")] == [
            1,
            2,
            3,
        ]
        assert not [name for name in config.given if "heap" in name]

    def test_data_moves_a_files_log_dirs(self, tmp_path: Path) -> None:
        assert sources.load(write(tmp_path, COMBINED), data=tmp_path).log_dirs == (tmp_path,)

    def test_port_requires_the_default_configuration(self, tmp_path: Path) -> None:
        with pytest.raises(NodeConfigError, match="--override listeners="):
            sources.load(write(tmp_path, COMBINED), port=9092)

    def test_variables_name_dashes_and_underscores(self) -> None:
        variables = {"KAFKA_LISTENER_NAME_A___B_SSL_KEY_PASSWORD": "x", "KAFKA_": "y", "PATH": "z"}
        assert sources.from_environment(variables) == {"listener.name.a-b.ssl.key.password": "x"}

    @pytest.mark.parametrize("text", ["no-equals", "=value", " = "])
    def test_an_override_is_key_and_value(self, text: str) -> None:
        with pytest.raises(NodeConfigError, match="key=value"):
            sources.load(overrides=[text])

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(NodeConfigError, match=r"cannot read .*none\.properties: No such file"):
            sources.load(tmp_path / "none.properties")

    def test_a_file_that_is_broken_names_its_line(self, tmp_path: Path) -> None:
        file = tmp_path / "server.properties"
        file.write_text("node.id=1\nbroken=\\u1\n")
        with pytest.raises(NodeConfigError, match=r"server\.properties: line 2"):
            sources.load(file)


def write(folder: Path, given: dict[str, str]) -> Path:
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    return file


def test_a_config_is_a_value() -> None:
    config: NodeConfig = rules.checked(COMBINED)
    assert config == rules.checked(dict(COMBINED))
