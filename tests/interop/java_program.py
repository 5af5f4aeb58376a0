"""A Java program of a test, with Apache Kafka's classes: it answers lines of JSON."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop.apache_kafka import java


class JavaProgram:
    """The running program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, **request: Any) -> Any:
        """The answer to a request; raises AssertionError when the program has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the JVM ended at {request}"
        return json.loads(answer)


@contextlib.contextmanager
def java_program(name: str) -> Iterator[JavaProgram]:
    """The program in that file of this folder."""
    command = java(str(Path(__file__).with_name(name)))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield JavaProgram(process)
        finally:
            process.kill()
