"""A klamm node in its own process, started by `klamm start`."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.ports import free_port

# Frames without a client id: ApiVersions v0, which a node answers early in its start, and Metadata v0 of no topics.
VERSIONS = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
METADATA = b"\x00\x00\x00\x0e\x00\x03\x00\x00\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00"


class NodeProcess:
    """`klamm start` on a data folder; the output goes to a file next to the folder."""

    def __init__(
        self,
        data: Path,
        *,
        port: int | None = None,
        overrides: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.port = port or free_port()
        self.overrides = dict(overrides or {})
        self.environment = os.environ | {"NO_COLOR": "1"} | dict(environment or {})
        self.output = data.parent / f"{data.name}.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The bootstrap address."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def command(self) -> Sequence[str]:
        """The command line."""
        overrides = [word for key, value in self.overrides.items() for word in ("--override", f"{key}={value}")]
        return [sys.executable, "-m", "klamm", "start", "--data", str(self.data), "--port", str(self.port), *overrides]

    def start(self, timeout_s: float = 30, poll_s: float = 0.02, request: bytes = METADATA) -> None:
        """Start, and wait until the node answers that request: it accepts connections before it can serve."""
        self.launch()
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"klamm ended with {self._process.returncode} at start:\n{self.log()}")
            if self.answers(request):
                return
            time.sleep(poll_s)
        raise AssertionError(f"klamm did not answer within {timeout_s} s:\n{self.log()}")

    def launch(self) -> None:
        """Start without waiting."""
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=self.environment,
            )

    def answers(self, request: bytes) -> bool:
        """Whether the node answers that request immediately."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.settimeout(5)
            connection.sendall(request)
            return len(connection.recv(4)) == 4
        return False

    def answers_metadata(self) -> bool:
        """Whether the node serves clients."""
        return self.answers(METADATA)

    def log(self) -> str:
        """The end of the node's output."""
        return self.output.read_text(errors="replace")[-8000:]

    def wait(self, timeout_s: float = 30) -> int:
        """Wait until the node ends by itself; returns its exit code."""
        assert self._process is not None, "not started"
        code = self._process.wait(timeout_s)
        self._process = None
        return code

    def kill(self) -> None:
        """SIGKILL, as in a crash of the process."""
        self._end(signal.SIGKILL)

    def stop(self, timeout_s: float = 30) -> int:
        """SIGTERM, a controlled shutdown; returns the exit code."""
        return self._end(signal.SIGTERM, timeout_s)

    def _end(self, number: signal.Signals, timeout_s: float = 30) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        return process.wait(timeout_s)

    def __enter__(self) -> NodeProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self._end(signal.SIGKILL)
                raise
