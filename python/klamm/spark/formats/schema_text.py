"""Schemas as text, and the registry's options. Imports little: every process that plans a query uses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as text, with its references: names and texts, each after those that it uses."""

    kind: str
    """AVRO, PROTOBUF or another type of the registry."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    origin: str = ""
    """Where it comes from, for messages."""


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """The addresses and credentials of the registry."""

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    """user:password."""
    token: str | None = field(default=None, repr=False)
    ca_location: str | None = None

    def describe(self) -> str:
        """The option and its value, without a password."""
        return f"option 'schema.registry.url' is '{','.join(split_user(url)[0] for url in self.urls)}'"


def split_user(url: str) -> tuple[str, str]:
    """Split `user:password@` off an address: the address, then the credentials."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return (parts._replace(netloc=host).geturl(), unquote(user)) if at else (url, "")
