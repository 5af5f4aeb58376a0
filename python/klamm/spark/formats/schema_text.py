"""Schemas as they are written, and where they are asked for. Light: every process that plans a query has these."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as it is written, with all that it refers to: names and texts, each after those that it uses."""

    kind: str
    """AVRO, PROTOBUF or another of the registry's."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    origin: str = ""
    """Where it comes from, for messages."""


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Where the registry is and who asks."""

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    """user:password."""
    token: str | None = field(default=None, repr=False)
    ca_location: str | None = None

    def describe(self) -> str:
        """The option and its value, without a password."""
        return f"option 'schema.registry.url' is '{','.join(split_user(url)[0] for url in self.urls)}'"


def split_user(url: str) -> tuple[str, str]:
    """The address without `user:password@`, and that."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return (parts._replace(netloc=host).geturl(), unquote(user)) if at else (url, "")
