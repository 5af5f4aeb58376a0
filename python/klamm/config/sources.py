"""Where a node's configuration comes from: a file or the embedded default, the environment, and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from klamm.config import properties
from klamm.config.node_config import NodeConfig, NodeConfigError
from klamm.config.rules import checked, is_known

DEFAULT_DATA: Final = Path("klamm-data")
DEFAULT_PORT: Final = 9092


def embedded_default(data: Path = DEFAULT_DATA, port: int = DEFAULT_PORT, host: str = "localhost") -> dict[str, str]:
    """One combined node for this machine alone: internal topics with one replica, the controller on a free port."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{host}:0",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # On one machine there are no other members to wait for.
        "group.initial.rebalance.delay.ms": "0",
    }


def load(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    data: Path | None = None,
    port: int | None = None,
) -> NodeConfig:
    """The configuration of `klamm start`. Later ones win: file or embedded default, environment, overrides.

    `overrides` are `key=value`; `data` and `port` change the embedded default. Raises NodeConfigError.
    """
    if file is None:
        given = embedded_default(DEFAULT_DATA if data is None else data, DEFAULT_PORT if port is None else port)
    else:
        given = read_file(file)
        if port is not None:
            raise NodeConfigError("--port is for a node without a file: use --override listeners=PLAINTEXT://host:port")
        if data is not None:
            given |= {"log.dirs": str(data)}
    return checked(given | from_environment(environment or {}) | dict(map(parse_override, overrides)))


def read_file(file: Path) -> dict[str, str]:
    """The keys and values of server.properties. Raises NodeConfigError."""
    try:
        text = properties.decode(file.read_bytes())
    except OSError as error:
        raise NodeConfigError(f"cannot read {file}: {error.strerror or error}") from None
    try:
        return properties.parse(text)
    except properties.PropertiesError as error:
        raise NodeConfigError(f"{file}: {error}") from None


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What `KAFKA_*` variables set, as in Apache Kafka's container image; those that name no key are not ours.

    `_` stands for a dot, `__` for an underscore, `___` for a dash.
    """
    found = {_key_of_variable(name): value for name, value in environment.items() if name.startswith("KAFKA_")}
    return {name: value for name, value in found.items() if is_known(name)}


def parse_override(text: str) -> tuple[str, str]:
    """Key and value of `key=value`. Raises NodeConfigError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise NodeConfigError(f"--override {text} is not key=value")
    return key.strip(), value.strip()


def _key_of_variable(name: str) -> str:
    dotted = name.removeprefix("KAFKA_").lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")
