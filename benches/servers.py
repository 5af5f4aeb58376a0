"""What is measured: klamm in both durabilities, the ceiling endpoint, and Apache Kafka 4.3.1 with stock JVM flags."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop import apache_kafka
from tests.support.node_process import NodeProcess, free_port

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "target" / "release"
STOCK_JVM = ("-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")


@dataclass
class Server:
    """A running endpoint under its letter in the table."""

    name: str
    address: str
    pid: int
    stop: Callable[[], object] = field(repr=False)

    @property
    def has_topics(self) -> bool:
        """Whether topics must be made first: the ceiling takes any name."""
        return not self.name.startswith("ceiling")

    def close(self) -> None:
        """Stop it."""
        self.stop()

    def resident_mb(self) -> float:
        """Resident memory now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0


def klamm(name: str, folder: Path, overrides: Mapping[str, str]) -> Server:
    """`klamm start`."""
    node = NodeProcess(folder / name, overrides=overrides)
    node.start()
    return Server(name, node.bootstrap, node.pid, node.kill)


def ceiling(name: str, folder: Path, *, durable: bool) -> Server:
    """The least that the wire format allows."""
    data, port = folder / name, free_port()
    data.mkdir()
    command = [str(TARGET / "klamm-ceiling"), str(port), str(data), *(["durable"] if durable else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return Server(name, f"127.0.0.1:{port}", process.pid, process.kill)


def kafka(name: str, folder: Path) -> Server:
    """Apache Kafka."""
    node = apache_kafka.KafkaNode(folder / name)
    node.format("4L6g3nShT-eMCtK--X86sw")
    node.start(jvm=STOCK_JVM)
    time.sleep(1)
    return Server(name, node.bootstrap, node.pid, node.kill)
