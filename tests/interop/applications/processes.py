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
from typing import Any, ClassVar

from tests.interop.apache_kafka import ROOT, fetch_jars
from tests.support.ports import free_port
from tests.support.waiting import wait_until

HERE = Path(__file__).parent


class JavaProcess:
    """A JVM whose output goes to a file."""

    POM: ClassVar = HERE / "pom.xml"
    LIBS: ClassVar = Path(os.environ.get("KLAMM_KAFKA_APPLICATION_LIBS", ROOT / "target" / "kafka-applications-4.3.1"))

    def __init__(self, output: Path, *arguments: str) -> None:
        self.output = output
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it without waiting."""
        jars = fetch_jars(self.POM, self.LIBS)
        command = ["java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, *self.arguments()], stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def arguments(self) -> Sequence[str]:
        """The class to run and its arguments."""
        return self._arguments

    def log(self) -> str:
        """Its output."""
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
    """A process of the application in WordCount.java."""

    def __init__(self, bootstrap: str, folder: Path, name: str, settings: Mapping[str, str]) -> None:
        self.state = folder / f"{name}-state"
        source = str(HERE / "WordCount.java")
        extra = [f"{key}={value}" for key, value in settings.items()]
        super().__init__(folder / f"{name}.out", source, bootstrap, "word-count", str(self.state), *extra)

    @property
    def is_running(self) -> bool:
        """Whether the last state that it reported is RUNNING."""
        states = [line.split()[1] for line in self.log().splitlines() if line.startswith("state ")]
        return states[-1:] == ["RUNNING"]


class Transfer(JavaProcess):
    """The job of Transfer.java. It restarts from its last checkpoint."""

    POM = HERE / "flink" / "pom.xml"
    LIBS = Path(os.environ.get("KLAMM_FLINK_LIBS", ROOT / "target" / "flink-2.0.0"))

    def __init__(self, bootstrap: str, folder: Path, naming: str) -> None:
        self._checkpoints, self._naming, self._bootstrap = folder / "checkpoints", naming, bootstrap
        super().__init__(folder / "transfer.out")

    def checkpoints(self) -> list[Path]:
        """The completed checkpoints that are retained, oldest first."""
        complete = self._checkpoints.glob("*/chk-*/_metadata")
        return [each.parent for each in sorted(complete, key=lambda each: each.stat().st_mtime)]

    def arguments(self) -> Sequence[str]:
        """See JavaProcess."""
        job = str(HERE / "Transfer.java"), self._bootstrap, self._checkpoints.as_uri(), self._naming
        return [*job, *(each.as_uri() for each in self.checkpoints()[-1:])]


class ConnectWorker(JavaProcess):
    """A worker of a distributed Connect cluster."""

    def __init__(self, bootstrap: str, folder: Path, name: str, extra: Mapping[str, str] | None = None) -> None:
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
            **(extra or {}),
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        worker = "org.apache.kafka.connect.cli.ConnectDistributed"
        super().__init__(folder / f"{name}.out", worker, str(properties))

    def request(self, method: str, path: str, body: object = None) -> Any:
        """A call of the REST API; None if it fails."""
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

    def runs_task_of(self, name: str) -> bool:
        """Whether this worker runs a task of the connector."""
        status = self.request("GET", f"/connectors/{name}/status")
        here = f"127.0.0.1:{self.port}"
        return status is not None and any(task["worker_id"] == here for task in status["tasks"])

    def states(self, name: str) -> Sequence[str]:
        """The states of the connector's tasks."""
        status = self.request("GET", f"/connectors/{name}/status")
        return [] if status is None else [task["state"] for task in status["tasks"]]
