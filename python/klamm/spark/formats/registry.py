"""A client of a schema registry with Confluent's REST paths. Schemas never change, so a process caches them."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm.spark.formats.schema_text import RegistryOptions, SchemaText, split_user

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 10
_TRIES: Final = 3
_PAUSE_S: Final = 0.2
_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND, _SCHEMA_NOT_FOUND = 40401, 40402, 40403
_REFERENCES_MAX: Final = 1000


class RegistryError(RuntimeError):
    """The registry cannot be reached, or returned an error; the message names its option and address."""


class UnknownSchemaError(RegistryError):
    """The registry has no schema with this id: the value was probably not written by a registry client."""


class UnknownSubjectError(RegistryError):
    """The registry has no such subject."""


_SCHEMAS: Final[dict[tuple[tuple[str, ...], int], SchemaText]] = {}


class Registry:
    """Sends requests to one of the addresses, and to another one if it does not respond."""

    def __init__(self, options: RegistryOptions) -> None:
        self._options = options
        self._headers = {"Accept": _MEDIA_TYPE} | _authorization(options)
        self._tls: ssl.SSLContext | None = None

    def by_id(self, schema_id: int) -> SchemaText:
        """The schema with this id, requested once per process. Raises RegistryError."""
        key = (self._options.urls, schema_id)
        found = _SCHEMAS.get(key)
        if found is None:
            document = self._get(f"/schemas/ids/{schema_id}", f"schema {schema_id}")
            found = _SCHEMAS[key] = self._with_references(document, f"schema {schema_id}")
        return found

    def latest(self, subject: str) -> SchemaText:
        """The newest schema of a subject. Raises RegistryError."""
        quoted = urllib.parse.quote(subject, safe="")
        document = self._get(f"/subjects/{quoted}/versions/latest", f"the schema of subject '{subject}'")
        return self._with_references(document, f"the schema of subject '{subject}'")

    def _with_references(self, document: Mapping[str, Any], what: str) -> SchemaText:
        text = document.get("schema")
        if not isinstance(text, str):
            raise self._error(f"{what} came without its text: is this a schema registry?")
        found: dict[str, str] = {}
        self._collect(document, found, what)
        return SchemaText(str(document.get("schemaType") or "AVRO"), text, tuple(found.items()), what)

    def _collect(self, document: Mapping[str, Any], found: dict[str, str], what: str) -> None:
        for reference in document.get("references") or ():
            try:
                name, subject, version = reference["name"], reference["subject"], int(reference["version"])
            except (TypeError, KeyError, ValueError):
                raise self._error(f"{what} has the reference {reference!r}") from None
            if name in found:
                continue
            if len(found) >= _REFERENCES_MAX:
                raise self._error(f"{what} refers to more than {_REFERENCES_MAX} others")
            path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"
            inner = self._get(path, f"version {version} of subject '{subject}', which {what} refers to,")
            found[name] = ""  # ends the recursion of circular references
            self._collect(inner, found, what)
            del found[name]
            found[name] = str(inner.get("schema", ""))

    def _get(self, path: str, what: str) -> Mapping[str, Any]:
        failed = ""
        for attempt in range(_TRIES):
            for url in self._options.urls:
                try:
                    return self._ask(url.rstrip("/") + path, what)
                except (OSError, http.client.HTTPException) as error:
                    failed = str(getattr(error, "reason", None) or error) or type(error).__name__
            if attempt + 1 < _TRIES:
                time.sleep(_PAUSE_S * 2**attempt)
        raise self._error(f"{what} cannot be requested: {failed}; is the registry running, and the address correct?")

    def _ask(self, url: str, what: str) -> Mapping[str, Any]:
        """One request. An OSError is worth a retry."""
        bare, credentials = split_user(url)
        headers = self._headers | ({"Authorization": _basic(credentials)} if credentials else {})
        try:
            request = urllib.request.Request(bare, headers=headers)
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls_of(bare)) as response:
                document = json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error, what) from None
        except ValueError as error:
            raise self._error(f"{what} came as no JSON ({error}): is this a schema registry?") from None
        if not isinstance(document, dict):
            raise self._error(f"{what} came as {str(document)[:100]!r}: is this a schema registry?")
        return document

    def _refused(self, error: urllib.error.HTTPError, what: str) -> Exception:
        document = _error_of(error)
        code, message = document.get("error_code"), document.get("message") or error.reason
        if error.code in (401, 403):
            return self._error(
                f"the registry refused to give {what} ({error.code} {message}); set the credentials by option "
                "'schema.registry.basic.auth.user.info' (user:password) or 'schema.registry.bearer.auth.token'"
            )
        if code == _SCHEMA_NOT_FOUND:
            return UnknownSchemaError(f"the registry has no {what} ({self._options.describe()})")
        if code in (_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND):
            return UnknownSubjectError(f"{self._options.describe()}: the registry does not have {what}: {message}")
        if error.code >= 500:
            return OSError(f"HTTP {error.code} {message}")
        return self._error(f"{what}: HTTP {error.code} {message}")

    def _error(self, why: str) -> RegistryError:
        return RegistryError(f"{self._options.describe()}: {why}")

    def _tls_of(self, url: str) -> ssl.SSLContext | None:
        if not url.startswith("https:"):
            return None
        if self._tls is None:
            try:
                self._tls = ssl.create_default_context(cafile=self._options.ca_location)
            except (OSError, ssl.SSLError) as error:
                raise RegistryError(
                    f"option 'schema.registry.ssl.ca.location' is '{self._options.ca_location}': {error}"
                ) from None
        return self._tls


def _error_of(error: urllib.error.HTTPError) -> Mapping[str, Any]:
    """The registry's error message; empty if the response is not from a registry."""
    read: Callable[[], bytes] = error.read
    try:
        document = json.loads(read())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _authorization(options: RegistryOptions) -> dict[str, str]:
    if options.token is not None:
        return {"Authorization": f"Bearer {options.token}"}
    return {} if options.user_info is None else {"Authorization": _basic(options.user_info)}


def _basic(user_info: str) -> str:
    return f"Basic {base64.b64encode(user_info.encode()).decode()}"
