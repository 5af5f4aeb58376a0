"""A schema registry for tests: Confluent's REST paths over HTTP, with schemas registered by the test."""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeRegistry:
    """Schemas by id, and the versions of subjects."""

    url: str = ""
    user_info: str | None = None
    failures_left: int = 0
    """That many requests get the response 500."""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """Register a schema, which becomes the subject's latest; returns its id."""
        schema_id = len(self.schemas) + 1
        document: dict[str, Any] = {"schema": schema}
        if kind != "AVRO":
            document["schemaType"] = kind
        if references:
            document["references"] = references
        self.schemas[schema_id] = document
        self.subjects.setdefault(subject, []).append(schema_id)
        return schema_id

    def answer(self, path: str) -> tuple[int, object]:
        """The response to a request."""
        match [urllib.parse.unquote(part) for part in path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
                return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
            case ["subjects", subject, "versions", version]:
                ids = self.subjects.get(subject)
                if ids is None:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                number = len(ids) if version == "latest" else int(version)
                if not 1 <= number <= len(ids):
                    return 404, {"error_code": 40402, "message": f"Version {version} not found."}
                schema_id = ids[number - 1]
                return 200, {"subject": subject, "version": number, "id": schema_id, **self.schemas[schema_id]}
            case _:
                return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def serving() -> Iterator[FakeRegistry]:
    """A registry that is reachable at its `url`."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            status, document = self._answer()
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _answer(self) -> tuple[int, object]:
            if registry.failures_left:
                registry.failures_left -= 1
                return 500, {"error_code": 50001, "message": "Error in the backend"}
            if registry.user_info is not None:
                wanted = "Basic " + base64.b64encode(registry.user_info.encode()).decode()
                if self.headers.get("Authorization") != wanted:
                    return 401, {"error_code": 401, "message": "Unauthorized"}
            return registry.answer(self.path)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
