"""Apache Kafka 4.3.1 from Maven: its tools, and nodes on free ports. Needs `java` and `mvn`."""

from __future__ import annotations

import atexit
import base64
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
LIBS = Path(os.environ.get("KLAMM_KAFKA_LIBS", ROOT / "target" / "kafka-4.3.1"))
POM = Path(__file__).with_name("pom.xml")
SEVERAL_TOOLS = Path(__file__).with_name("Tools.java")
MARK = ".complete"

TOOLS: Mapping[str, str] = {
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "configs": "kafka.admin.ConfigCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "storage": "kafka.tools.StorageTool",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


def why_not() -> str | None:
    """Why Apache Kafka cannot run here; None when it can."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


def libs() -> Path:
    """The folder with Apache Kafka's jars."""
    return fetch_jars(POM, LIBS)


def fetch_jars(pom: Path, folder: Path) -> Path:
    """The folder with the jars of a POM; Maven fetches them at first use and after a change of the POM.

    If several processes need them, one calls Maven.
    """
    mark, wanted = folder / MARK, pom.read_text()

    def is_complete() -> bool:
        return mark.exists() and mark.read_text() == wanted

    if not is_complete():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_complete():
                goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
                command = ["mvn", "-q", "-B", "-f", str(pom), *goal]
                subprocess.run(command, check=True, timeout=900, stdin=subprocess.DEVNULL)
                mark.write_text(wanted)
    return folder


def java(*arguments: str, heap: str = "-Xmx256M") -> list[str]:
    """The command line for a short-lived run of a class of Apache Kafka.

    It uses only the quick compiler and shares class data of an earlier JVM, which saves two fifths of the start.
    """
    folder = libs()
    if not _WITH_CLASSES:
        _WITH_CLASSES.append(_classes(folder))
    return [*_java(folder, heap), f"-XX:SharedArchiveFile={_WITH_CLASSES[0]}", "-Xlog:cds*=off", *arguments]


_WITH_CLASSES: list[Path] = []


def _java(folder: Path, heap: str) -> list[str]:
    return ["java", heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{folder}/*"]


def _classes(folder: Path) -> Path:
    """The file of shared class data, created once by a node that starts and stops. A JVM also starts without it."""
    file = folder / "classes.jsa"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            with tempfile.TemporaryDirectory(prefix="classes-", dir=folder) as place:
                made = Path(place) / file.name
                with contextlib.suppress(AssertionError, OSError, subprocess.SubprocessError):
                    _make_classes(folder, made)
                    made.replace(file)
    return file


def _make_classes(folder: Path, made: Path) -> None:
    node = KafkaNode(made.parent / "data")
    settings = str(node.write_properties())
    format_it = [TOOLS["storage"], "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", settings]
    subprocess.run([*_java(folder, "-Xmx256M"), *format_it], check=True, capture_output=True, timeout=120)
    leaving = f"-XX:ArchiveClassesAtExit={made}"
    try:
        node.run([*_java(folder, "-Xmx512M"), leaving, "kafka.Kafka", settings], timeout_s=120)
    finally:
        node.stop()


def tool(
    name: str, *arguments: str, stdin: str | None = None, timeout_s: float = 60, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run one of Apache Kafka's command line tools to its end, if possible in the JVM that is kept for tools."""
    if shutil.which("javac") is None:
        return _alone(name, *arguments, stdin=stdin, timeout_s=timeout_s, check=check)
    return TOOLS_TOGETHER(name, *arguments, stdin=stdin, timeout_s=timeout_s, check=check)


def _alone(
    name: str, *arguments: str, stdin: str | None, timeout_s: float, check: bool
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        java(TOOLS[name], *arguments), input=stdin or "", capture_output=True, text=True, timeout=timeout_s, check=False
    )
    return _checked(name, arguments, done) if check else done


def _checked(
    name: str, arguments: Sequence[str], done: subprocess.CompletedProcess[str]
) -> subprocess.CompletedProcess[str]:
    if done.returncode != 0:
        raise AssertionError(f"{name} {' '.join(arguments)} exited {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done


@contextlib.contextmanager
def one_processor() -> Iterator[None]:
    """Processes that are started in the block get one processor, if the system supports this."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def metadata_shell(file: Path, *command: str, until: str) -> str:
    """The output of the metadata shell for a snapshot or a log, once it contains `until`.

    The shell does not wait until it has read everything: sometimes it prints an empty image, or hangs because its
    loader had all records before its reader reached the end. So it is retried, and runs on one processor, where the
    reader nearly always comes first.
    """
    printed = ""
    for _ in range(10):
        with contextlib.suppress(subprocess.TimeoutExpired), one_processor():
            arguments = "metadata-shell", "--snapshot", str(file), *command
            printed = _alone(*arguments, stdin=None, timeout_s=20, check=True).stdout
            if until in printed:
                return printed
    raise AssertionError(f"the metadata shell does not find {until} in {file}:\n{printed}")


class Tools:
    """Apache Kafka's command line tools in one JVM, which starts with the first tool. Needs a JDK, for `javac`."""

    def __init__(self) -> None:
        self._using = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def __call__(
        self, name: str, *arguments: str, stdin: str | None = None, timeout_s: float = 300, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool to its end; raises AssertionError for a failure when `check` is set.

        Raises TimeoutExpired when it takes too long; the next one then gets another JVM.

        If a controller answers that there is no leader, the admin client of --bootstrap-controller never asks again,
        and times out a minute later without having sent its request. The tool is then run once more.
        """
        done = self._run(name, arguments, stdin or "", timeout_s)
        if "Timed out waiting for a node assignment" in done.stdout + done.stderr:
            done = self._run(name, arguments, stdin or "", timeout_s)
        return _checked(name, arguments, done) if check else done

    def _run(
        self, name: str, arguments: tuple[str, ...], stdin: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        words = base64.b64encode(stdin.encode()).decode(), TOOLS[name], *arguments
        with self._using:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            limit = threading.Timer(timeout_s, process.kill)
            limit.start()
            try:
                process.stdin.write("\x1f".join(words) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except BaseException:  # also for a test's timeout: the next tool would otherwise read this answer
                self.close()
                raise
            finally:
                limit.cancel()
            if not answer:
                self.close()
                raise subprocess.TimeoutExpired([name, *arguments], timeout_s)
        code, *texts = answer.rstrip("\n").split(" ")
        printed, complained = (base64.b64decode(text).decode() for text in texts)
        return subprocess.CompletedProcess((name, *arguments), int(code), printed, complained)

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = java(str(SEVERAL_TOOLS))
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self._process

    def close(self) -> None:
        """Stop the JVM."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
            process.wait(60)


TOOLS_TOGETHER: Final = Tools()
"""This process's JVM of tools."""
atexit.register(TOOLS_TOGETHER.close)


class KafkaNode:
    """A combined Apache Kafka node on a data folder, which must be formatted first."""

    def __init__(self, data: Path, *, node_id: int = 1, overrides: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.port = free_port()
        controller_port = free_port()
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller_port}",
            "log.dirs": str(data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(overrides or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.output = data.parent / f"{data.name}.kafka.out"

    @property
    def bootstrap(self) -> str:
        """The bootstrap address."""
        return f"127.0.0.1:{self.port}"

    def write_properties(self) -> Path:
        """Write its server.properties."""
        path = self.data.parent / f"{self.data.name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        return path

    def format(self, cluster_id: str, *arguments: str) -> None:
        """Run `kafka-storage format`."""
        tool("storage", "format", "-t", cluster_id, "-c", str(self.write_properties()), *arguments)

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self, timeout_s: float = 60, jvm: Sequence[str] = (), poll_s: float = 0.1) -> None:
        """Start the node and wait until it accepts connections. `jvm` replaces flags for short-lived processes."""
        command = java("kafka.Kafka", str(self.write_properties()), heap="-Xmx512M")
        if jvm:
            command = ["java", *jvm, "-cp", f"{libs()}/*", "kafka.Kafka", str(self.write_properties())]
        self.run(command, timeout_s, poll_s)

    def run(self, command: Sequence[str], timeout_s: float, poll_s: float = 0.1) -> None:
        """Like `start`, with a complete command line."""
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"Apache Kafka ended at start:\n{self.output.read_text()[-4000:]}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
                return
            time.sleep(poll_s)
        raise AssertionError(f"Apache Kafka did not listen within {timeout_s} s")

    def stop(self) -> None:
        """Controlled shutdown."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process, as in a crash."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(120)
            self._process = None

    def __enter__(self) -> KafkaNode:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def running(data: Path, cluster_id: str, overrides: Mapping[str, str] | None = None) -> Iterator[KafkaNode]:
    """A freshly formatted node."""
    node = KafkaNode(data, overrides=overrides)
    node.format(cluster_id)
    with node:
        yield node


def dump(paths: Sequence[Path], *options: str) -> str:
    """The output of DumpLogSegments for files; raises when it cannot read one."""
    files = ",".join(str(path) for path in paths)
    return tool("dump-log", *options, "--files", files).stdout
