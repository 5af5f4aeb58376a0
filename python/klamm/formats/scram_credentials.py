"""The credentials of `klamm storage format --add-scram` as metadata records (KIP-900, `ScramParser`)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import Final

from klamm.protocol.generated.metadata_records import UserScramCredentialRecord

ITERATIONS_DEFAULT: Final = 4096
ITERATIONS_MAX: Final = 16384

_MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_SALT_BYTES: Final = 24


class ScramError(ValueError):
    """An --add-scram argument that is refused. Never repeats a password."""


def parse(argument: str) -> UserScramCredentialRecord:
    """`SCRAM-SHA-256=[name=alice,password=secret]`, or with iterations, and salt and saltedpassword in base64.

    Raises ScramError.
    """
    name, equals, rest = argument.partition("=")
    if name not in _MECHANISMS or not equals:
        raise ScramError(f"--add-scram must begin with one of {', '.join(f'{known}=' for known in _MECHANISMS)}")
    if not (rest.startswith("[") and rest.endswith("]")):
        raise ScramError(f"--add-scram {name}=...: the fields must stand in brackets, as [name=alice,password=secret]")
    number, digest = _MECHANISMS[name]
    fields = _fields(rest[1:-1])
    user = _taken(fields, "name")
    iterations = _iterations(fields.pop("iterations", None))
    salt = _base64(fields.pop("salt", None), "salt") or secrets.token_bytes(_SALT_BYTES)
    salted = _salted_password(fields, digest, salt, iterations)
    if fields:
        raise ScramError(f"--add-scram has {', '.join(sorted(fields))}, which is no field of a credential")
    return UserScramCredentialRecord(
        name=user,
        mechanism=number,
        salt=salt,
        stored_key=hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest(),
        server_key=hmac.digest(salted, b"Server Key", digest),
        iterations=iterations,
    )


def _fields(text: str) -> dict[str, str]:
    """`key=value,key="value"`; quoted values may hold commas and brackets."""
    found: dict[str, str] = {}
    for match in re.finditer(r'\s*([a-z]+)\s*=\s*(?:"([^"]*)"|([^,"]*))\s*(?:,|$)', text):
        found[match[1]] = match[3] if match[2] is None else match[2]
    return found


def _taken(fields: dict[str, str], name: str) -> str:
    value = fields.pop(name, "")
    if not value:
        raise ScramError(f"--add-scram needs {name}=...")
    return value


def _iterations(text: str | None) -> int:
    if text is None:
        return ITERATIONS_DEFAULT
    if not text.isdecimal() or not ITERATIONS_DEFAULT <= int(text) <= ITERATIONS_MAX:
        raise ScramError(f"--add-scram iterations={text} is not within {ITERATIONS_DEFAULT} and {ITERATIONS_MAX}")
    return int(text)


def _base64(text: str | None, name: str) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError(f"--add-scram {name}=... is not base64") from None


def _salted_password(fields: dict[str, str], digest: str, salt: bytes, iterations: int) -> bytes:
    password = fields.pop("password", None)
    salted = _base64(fields.pop("saltedpassword", None), "saltedpassword")
    if (password is None) == (salted is None):
        raise ScramError("--add-scram needs either password=... or saltedpassword=...")
    if password is None:
        return salted or b""
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
