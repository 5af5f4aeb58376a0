"""Processes of Kafka Streams and Kafka Connect, with their jars from Maven."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.interop.apache_kafka import ROOT, fetch_jars
from tests.support.ports import free_port
from tests.support.waiting import wait_until

LIBS = Path(os.environ.get("KLAMM_KAFKA_APPLICATION_LIBS", ROOT / "target" / "kafka-applications-4.3.1"))
HERE = Path(__file__).parent


class JavaProcess:
    """A JVM whose output goes to a file."""

    def __init__(self, output: Path, *arguments: str) -> None:
        self.output = output
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait for nothing."""
        jars = fetch_jars(HERE / "pom.xml", LIBS)
        command = ["java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, *self._arguments], stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def log(self) -> str:
        """What it has printed."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(60)


class WordCount(JavaProcess):
    """An instance of the application of WordCount.java."""

    def __init__(self, bootstrap: str, folder: Path, name: str, settings: Mapping[str, str]) -> None:
        self.state = folder / f"{name}-state"
        source = str(HERE / "WordCount.java")
        extra = [f"{key}={value}" for key, value in settings.items()]
        super().__init__(folder / f"{name}.out", source, bootstrap, "word-count", str(self.state), *extra)

    @property
    def is_running(self) -> bool:
        """Whether the last state that it entered is RUNNING."""
        states = [line.split()[1] for line in self.log().splitlines() if line.startswith("state ")]
        return states[-1:] == ["RUNNING"]


class ConnectWorker(JavaProcess):
    """A worker of a distributed Connect cluster."""

    def __init__(self, bootstrap: str, folder: Path, name: str) -> None:
        self.port = free_port()
        properties = folder / f"{name}.properties"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "listeners": f"http://127.0.0.1:{self.port}",
            "rest.advertised.host.name": "127.0.0.1",
            "rest.advertised.port": str(self.port),
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "10000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "2000",
            "plugin.discovery": "only_scan",
            **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("offset", "config", "status")},
            **{f"{kind}.storage.replication.factor": "3" for kind in ("offset", "config", "status")},
            **{f"{kind}.storage.partitions": "3" for kind in ("offset", "status")},
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        worker = "org.apache.kafka.connect.cli.ConnectDistributed"
        super().__init__(folder / f"{name}.out", worker, str(properties))

    def request(self, method: str, path: str, body: object = None) -> Any:
        """A call of the REST API; None while it does not succeed."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except (OSError, urllib.error.HTTPError):
            return None

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create the connector, or change its config."""
        wait_until(lambda: self.request("PUT", f"/connectors/{name}/config", config) is not None, bound_s=120)

    def states(self, name: str) -> Sequence[str]:
        """The states of the connector's tasks."""
        status = self.request("GET", f"/connectors/{name}/status")
        return [] if status is None else [task["state"] for task in status["tasks"]]
