"""`--command-config`: keys of Kafka's clients from a file, where no list of processes shows a password."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from klamm.cli.framework.options import Option
from klamm.client import ClientError

CommandConfig = Annotated[
    Path | None,
    Option(
        "--command-config",
        envvar="KLAMM_COMMAND_CONFIG",
        metavar="FILE",
        help="Keys of Kafka's clients as a properties file: TLS and SASL.",
        panel="Where and how",
    ),
]


def client_keys(file: Path | None) -> dict[str, str]:
    """The keys of a file; none without one. Where the brokers are, the command says itself. Raises ClientError."""
    if file is None:
        return {}
    from klamm.config.properties import PropertiesError, parse

    try:
        keys = parse(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"--command-config {file} cannot be read: {error}") from None
    except PropertiesError as error:
        raise ClientError(f"--command-config {file}: {error}") from None
    keys.pop("bootstrap.servers", None)
    return keys
