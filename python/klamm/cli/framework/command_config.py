"""`--command-config`: keys of Kafka's clients from a file, because process lists show passwords of command lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from klamm.cli.framework.options import Option
from klamm.client import ClientError
from klamm.config.properties import PropertiesError, parse

CommandConfig = Annotated[
    Path | None,
    Option(
        "--command-config",
        envvar="KLAMM_COMMAND_CONFIG",
        metavar="FILE",
        help="A properties file with client configurations: TLS and SASL.",
        panel="Where and how",
    ),
]


def client_keys(file: Path | None) -> dict[str, str]:
    """The keys of a file, none without a file. Bootstrap servers come from the command. Raises ClientError."""
    if file is None:
        return {}

    try:
        keys = parse(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"--command-config {file} cannot be read: {error}") from None
    except PropertiesError as error:
        raise ClientError(f"--command-config {file}: {error}") from None
    keys.pop("bootstrap.servers", None)
    return keys
