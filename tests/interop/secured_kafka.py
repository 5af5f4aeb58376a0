"""One Apache Kafka node with a listener for each security protocol: listeners are cheaper than JVMs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.apache_kafka import KafkaNode
from tests.support.certificates import LONG_AGO, Authority, joined
from tests.support.ports import free_port

CLUSTER_ID: Final = "5Q0wkdbjQ4S5N2oVYb1mYA"
USER: Final = "alice"
PASSWORD: Final = "open-sesame;='"
"""Nothing may show it; its last letters mean something to JAAS."""
SESSION_MS: Final = 2_000

_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PROTOCOLS: Final = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "STRANGER": "SSL",
    "EXPIRED": "SSL",
    "SCRAM": "SASL_SSL",
    "PLAIN": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
    "QUORUM": "SASL_SSL",
}
"""By listener. STRANGER has a certificate for another name, EXPIRED one of long ago, SHORT sessions of `SESSION_MS`.

QUORUM is the controller's, beside the one that the node itself uses.
"""


def jaas(module: str, user: str = USER, password: str = PASSWORD) -> str:
    """The `sasl.jaas.config` of a client."""
    return f'{module} required username="{user}" password="{password}";'


@dataclass(frozen=True)
class Files:
    """PEM files of a client."""

    authority: Path
    other_authority: Path
    store: Path
    """Key and certificate of a client that the MUTUAL listener trusts."""
    key: Path
    certificate: Path


class SecuredKafka(KafkaNode):
    """The PLAINTEXT listener is that of the node; the others are at `address`."""

    def __init__(self, data: Path, folder: Path) -> None:
        """Create the certificates in `folder`."""
        super().__init__(data)
        ours, other = Authority(folder, "authority"), Authority(folder, "other")
        key, certificate = ours.sign("client", None)
        store = joined(key, certificate)
        self.files = Files(ours.pem, other.pem, store, key, certificate)
        self._ports = {name: free_port() for name in _PROTOCOLS}
        self._add_listeners()
        stores = {
            "TLS": ours.sign("broker"),
            "MUTUAL": ours.sign("mutual"),
            "SCRAM": ours.sign("scram"),
            "STRANGER": ours.sign("stranger", "DNS:elsewhere.example"),
            "EXPIRED": ours.sign("expired", valid=LONG_AGO),
            "QUORUM": ours.sign("quorum"),
        }
        for name, files in stores.items():
            self._set(name, "ssl.keystore.type", "PEM")
            self._set(name, "ssl.keystore.location", str(joined(*files)))
        self._set("MUTUAL", "ssl.client.auth", "required")
        self._set("MUTUAL", "ssl.truststore.type", "PEM")
        self._set("MUTUAL", "ssl.truststore.location", str(ours.pem))
        plain = f'{_PLAIN_MODULE} required user_{USER}="{PASSWORD}";'
        for name, mechanisms in (
            ("SCRAM", "SCRAM-SHA-512,SCRAM-SHA-256"),
            ("PLAIN", "PLAIN"),
            ("SHORT", "SCRAM-SHA-256"),
            ("QUORUM", "PLAIN"),
        ):
            self._set(name, "sasl.enabled.mechanisms", mechanisms)
            for mechanism in mechanisms.lower().split(","):
                self._set(
                    name,
                    f"{mechanism}.sasl.jaas.config",
                    plain if mechanism == "plain" else f"{_SCRAM_MODULE} required;",
                )
        self._set("SHORT", "scram-sha-256.connections.max.reauth.ms", str(SESSION_MS))

    def address(self, listener: str) -> str:
        """The address of a listener."""
        return f"127.0.0.1:{self._ports[listener]}"

    def format_with_users(self) -> None:
        """Format it with a SCRAM user."""
        users = [
            word
            for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256")
            for word in ("--add-scram", f'{mechanism}=[name="{USER}",password="{PASSWORD}"]')
        ]
        self.format(CLUSTER_ID, *users)

    def _set(self, listener: str, key: str, value: str) -> None:
        self.settings[f"listener.name.{listener.lower()}.{key}"] = value

    def _add_listeners(self) -> None:
        self.settings["controller.listener.names"] += ",QUORUM"
        added = "".join(f",{name}://127.0.0.1:{port}" for name, port in self._ports.items())
        self.settings["listeners"] += added
        self.settings["advertised.listeners"] += added
        protocols = "".join(f",{name}:{protocol}" for name, protocol in _PROTOCOLS.items())
        self.settings["listener.security.protocol.map"] += protocols


@contextlib.contextmanager
def running(folder: Path) -> Iterator[SecuredKafka]:
    """A running node, with its data and certificates in `folder`."""
    node = SecuredKafka(folder / "data", folder)
    node.format_with_users()
    with node:
        yield node


def trusting(node: SecuredKafka) -> dict[str, str]:
    """Client keys for the TLS listener."""
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(node.files.authority),
    }


def by_scram(node: SecuredKafka, mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD) -> dict[str, str]:
    """Client keys for the SCRAM listener."""
    return {
        **trusting(node),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(_SCRAM_MODULE, password=password),
    }


def by_plain(password: str = PASSWORD) -> dict[str, str]:
    """Client keys for the PLAIN listener."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas(_PLAIN_MODULE, password=password),
    }


def of_the_quorum(node: SecuredKafka, password: str = PASSWORD) -> dict[str, str]:
    """Client keys for the QUORUM listener."""
    return {**trusting(node), **by_plain(password), "security.protocol": "SASL_SSL"}
