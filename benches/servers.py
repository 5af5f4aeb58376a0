"""The servers: klamm with both durabilities, the ceiling endpoint, and Apache Kafka 4.3.1 with stock JVM flags."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from tests.interop import apache_kafka
from tests.support.node_process import VERSIONS, NodeProcess
from tests.support.ports import free_port

from benches import client

ROOT: Final = Path(__file__).resolve().parents[1]
STOCK_JVM: Final = (
    "-Xms1G",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
KAFKA_CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
# Delete the files of a measured topic soon, so that the next cell has page cache and disk for itself.
BOTH: Final = {
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
}

QUICK_SETTLE_BYTES: Final = 256 << 20
SETTLE_BYTES: Final = 2 << 30

KAFKA: Final = "kafka"
KLAMM: Final = "klamm"
KLAMM_DURABLE: Final = "klamm durable"
CEILING: Final = "ceiling"
CEILING_DURABLE: Final = "ceiling durable"


class Process(Protocol):
    """A server that can be restarted on its folder."""

    @property
    def bootstrap(self) -> str:
        """Host and port."""

    @property
    def pid(self) -> int:
        """The running process."""

    def start(self) -> None:
        """Start, and wait until ApiVersions is answered."""

    def kill(self) -> object:
        """SIGKILL."""

    def stop(self) -> object:
        """A controlled shutdown."""


def program(name: str) -> str:
    """The path of the load generator or of the ceiling endpoint; `KLAMM_BENCH_PROGRAMS` names another folder."""
    folder = os.environ.get("KLAMM_BENCH_PROGRAMS")
    path = (Path(folder) if folder else ROOT / "target" / "release") / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: cargo build --release -p klamm-load")
    return str(path)


@dataclass
class Server:
    """A server of one kind, with the resource usage of its process."""

    kind: str
    data: Path
    process: Process = field(repr=False)

    @property
    def address(self) -> str:
        """Host and port."""
        return self.process.bootstrap

    @property
    def pid(self) -> int:
        """The running process."""
        return self.process.pid

    @property
    def is_ceiling(self) -> bool:
        """The ceiling endpoint accepts any topic, and serves only produce and fetch."""
        return self.kind in (CEILING, CEILING_DURABLE)

    def resident_mb(self) -> float:
        """Resident memory."""
        return resident_mb(self.pid)

    def cpu_seconds(self) -> float:
        """User and system time since the start."""
        return cpu_seconds(self.pid)

    def open_files(self) -> int:
        """Descriptors of regular files and folders; sockets do not count."""
        count = 0
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                count += entry.readlink().is_absolute() and not str(entry.readlink()).startswith("/dev/")
        return count

    def read_gb(self) -> float:
        """What the process has read from the disk itself since its start."""
        for line in Path(f"/proc/{self.pid}/io").read_text().splitlines():
            name, _, value = line.partition(": ")
            if name == "read_bytes":
                return int(value) / 1e9
        raise LookupError(f"/proc/{self.pid}/io has no read_bytes")


def resident_mb(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"/proc/{pid}/status has no VmRSS")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process since it started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    """Provides servers to cells. Those from `shared` remain for the next cell; those from `fresh` do not."""

    def __init__(self, *, quick: bool, settle_bytes: int | None = None) -> None:
        """`quick`: small cells. `settle_bytes`: see `cells.settle`; 0 if figures do not matter."""
        self.quick = quick
        self.settle_bytes = settle_bytes if settle_bytes is not None else QUICK_SETTLE_BYTES if quick else SETTLE_BYTES
        self._folder = tempfile.TemporaryDirectory(prefix="klamm-bench-")
        self.folder = Path(self._folder.name)
        self._shared: dict[str, Server] = {}

    def shared(self, kind: str) -> Server:
        """The running server of this kind, started if necessary."""
        if kind not in self._shared:
            self._shared[kind] = start(kind, self.new_folder(kind) / "data", {})
        return self._shared[kind]

    def drop(self, kind: str) -> None:
        """Stop the shared server of this kind, because it failed, or because its memory and disk space are needed."""
        server = self._shared.pop(kind, None)
        if server is not None:
            end(server)

    def drop_all(self) -> None:
        """Stop all shared servers."""
        for kind in list(self._shared):
            self.drop(kind)

    @contextlib.contextmanager
    def fresh(self, kind: str, overrides: Mapping[str, str] | None = None) -> Iterator[Server]:
        """A new server on an empty folder that is removed afterwards."""
        server = start(kind, self.new_folder(kind) / "data", overrides or {})
        try:
            yield server
        finally:
            end(server)

    def new_folder(self, kind: str) -> Path:
        """An empty folder that is removed with the bench."""
        return Path(tempfile.mkdtemp(prefix=kind.replace(" ", "-") + "-", dir=self.folder))

    def close(self) -> None:
        """Stop everything."""
        self.drop_all()
        self._folder.cleanup()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(kind: str, data: Path, overrides: Mapping[str, str]) -> Server:
    """Start a server of that kind."""
    process: Process
    match kind:
        case "kafka":
            process = KafkaProcess(data, overrides)
        case "klamm" | "klamm durable":
            process = KlammProcess(data, {**BOTH, **flushing(kind), **overrides})
        case "ceiling" | "ceiling durable":
            process = CeilingProcess(data, durable=kind == CEILING_DURABLE)
        case _:
            raise ValueError(f"there is no server '{kind}'")
    process.start()
    return Server(kind, data, process)


def flushing(kind: str) -> dict[str, str]:
    """The durability of one of klamm's two kinds."""
    return {"klamm.flush.before.ack": "all" if kind == KLAMM_DURABLE else "none"}


def end(server: Server) -> None:
    """Kill it and remove its folder."""
    server.process.kill()
    shutil.rmtree(server.data.parent, ignore_errors=True)


class KlammProcess(NodeProcess):
    """`klamm start`."""

    def __init__(self, data: Path, overrides: Mapping[str, str]) -> None:
        # As after an installation: pip compiles the modules, or the first start from a checkout does.
        super().__init__(data, overrides=overrides, environment={"PYTHONDONTWRITEBYTECODE": ""})

    def command(self) -> Sequence[str]:
        """The command of the `klamm` script; `python -m` would import more."""
        python, _, _, *words = super().command()
        return [python, "-c", "from klamm.cli.main import main; main()", *words]

    def start(self, timeout_s: float = 120, poll_s: float = 0.001, request: bytes = VERSIONS) -> None:
        """Start, and wait until ApiVersions is answered."""
        super().start(timeout_s, poll_s, request)


class KafkaProcess(apache_kafka.KafkaNode):
    """Apache Kafka."""

    def __init__(self, data: Path, overrides: Mapping[str, str]) -> None:
        super().__init__(data, overrides={**BOTH, **overrides})
        self.format(KAFKA_CLUSTER_ID)

    def start(self, timeout_s: float = 120, jvm: object = None, poll_s: float = 0.005) -> None:
        """Start, and wait until ApiVersions is answered."""
        super().start(timeout_s, STOCK_JVM, poll_s)
        client.until_answered(self.bootstrap)


class CeilingProcess:
    """The ceiling endpoint, which does the minimum that the wire format allows."""

    def __init__(self, data: Path, *, durable: bool) -> None:
        port = free_port()
        data.mkdir(parents=True)
        self.bootstrap = f"127.0.0.1:{port}"
        self._command = [program("klamm-ceiling"), str(port), str(data), *(["durable"] if durable else [])]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The running process."""
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it listens."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"{' '.join(self._command)} ended with {self._process.wait()}")

    def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    stop = kill
