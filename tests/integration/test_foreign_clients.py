"""Clients of other languages: Go (franz-go), JavaScript (kafkajs), C (kcat), Java (Apache Kafka's own tools)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop import apache_kafka
from tests.support import foreign

HERE = Path(__file__).parent
Name = Callable[[str], str]


@pytest.mark.timeout(400)
def test_franz_go(bootstrap: str, name: Name) -> None:
    foreign.require("go")
    program = foreign.BUILD / "go-client"
    program.parent.mkdir(parents=True, exist_ok=True)
    foreign.run(["go", "build", "-o", str(program), "."], cwd=HERE / "go", timeout_s=300)
    assert foreign.run([str(program), bootstrap, name("go")]) == "ok\n"


@pytest.mark.timeout(300)
def test_kafkajs(bootstrap: str, name: Name) -> None:
    foreign.require("node", "npm")
    folder = foreign.BUILD / "js"
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "package-lock.json", "client.js"):
        shutil.copy(HERE / "js" / file, folder / file)
    foreign.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, timeout_s=200)
    assert foreign.run(["node", "client.js", bootstrap, name("js")], cwd=folder) == "ok\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat(bootstrap: str, name: Name, codec: str) -> None:
    foreign.require("kcat")
    topic = name("kcat")
    lines = "".join(f"key{n}:value{n}\n" for n in range(100))
    foreign.run(["kcat", "-b", bootstrap, "-t", topic, "-P", "-K", ":", "-z", codec], stdin=lines)
    read = ["kcat", "-b", bootstrap, "-t", topic, "-C", "-e", "-q", "-K", ":", "-o", "beginning"]
    assert foreign.run(read) == lines
    assert f'topic "{topic}" with 1 partitions' in foreign.run(["kcat", "-b", bootstrap, "-L"])


def test_kcat_headers_tombstones_offsets_and_groups(bootstrap: str, name: Name) -> None:
    foreign.require("kcat")
    topic, group = name("kcat"), name("group")
    kcat = ["kcat", "-b", bootstrap]
    foreign.run([*kcat, "-P", "-t", topic, "-K", ":", "-Z", "-H", "a=1", "-H", "a=2"], stdin="k1:v1\nk2:\n")
    shown = [*kcat, "-C", "-t", topic, "-e", "-q", "-o", "beginning", "-f"]
    assert foreign.run([*shown, "%k %S %h %o\n"]) == "k1 2 a=1,a=2 0\nk2 -1 a=1,a=2 1\n"
    first_ms = foreign.run([*shown, "%T\n"]).split()[0]
    assert f"{topic} [0] offset 0" in foreign.run([*kcat, "-Q", "-t", f"{topic}:0:{first_ms}"])
    assert f"{topic} [0] offset 2" in foreign.run([*kcat, "-Q", "-t", f"{topic}:0:-1"])
    member = [*kcat, "-X", "auto.offset.reset=earliest", "-q", "-c", "1", "-f", "%k\n", "-G", group, topic]
    assert [foreign.run(member), foreign.run(member)] == ["k1\n", "k2\n"], "it continues at committed offsets"


def kafka_tool(tool: str, bootstrap: str, *arguments: str, stdin: str | None = None) -> str:
    foreign.require("java", "mvn")
    return apache_kafka.tool(tool, "--bootstrap-server", bootstrap, *arguments, stdin=stdin, timeout_s=90).stdout


@pytest.mark.timeout(400)
def test_java_console_tools(bootstrap: str, name: Name) -> None:
    topic, group = name("java"), name("group")
    kafka_tool("topics", bootstrap, "--create", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in kafka_tool("topics", bootstrap, "--describe", "--topic", topic)
    lines = "".join(f"line {n}\n" for n in range(50))
    kafka_tool("console-producer", bootstrap, "--topic", topic, stdin=lines)
    settings = ("--topic", topic, "--from-beginning", "--max-messages", "50", "--group", group)
    read = kafka_tool("console-consumer", bootstrap, *settings)
    assert sorted(read.splitlines()) == sorted(lines.splitlines())
    described = kafka_tool("consumer-groups", bootstrap, "--describe", "--group", group)
    lags = [line.split()[5] for line in described.splitlines() if line.startswith(group)]
    assert lags == ["0", "0", "0"]
    sizes = kafka_tool("get-offsets", bootstrap, "--topic", topic)
    assert sum(int(line.rsplit(":", 1)[1]) for line in sizes.splitlines()) == 50
    assert topic in kafka_tool("log-dirs", bootstrap, "--describe", "--topic-list", topic)
    kafka_tool("configs", bootstrap, "--alter", "--topic", topic, "--add-config", "retention.ms=3600000")
    assert "retention.ms=3600000" in kafka_tool("configs", bootstrap, "--describe", "--topic", topic)
    assert "LeaderId:" in kafka_tool("metadata-quorum", bootstrap, "describe", "--status")
    kafka_tool("topics", bootstrap, "--delete", "--topic", topic)


@pytest.mark.timeout(400)
def test_java_records_static_member_and_errors(bootstrap: str, name: Name) -> None:
    foreign.require("java", "mvn")
    topic, group = name("java"), name("group")
    parsed = [f"parse.{part}=true" for part in ("key", "headers")] + ["null.marker=NULL"]
    reader = [word for setting in parsed for word in ("--reader-property", setting)]
    lines = "a:1,a:2\tk1\tv1\nb:x\tk2\tNULL\n"
    codec = ("--compression-codec", "zstd")
    kafka_tool("console-producer", bootstrap, "--topic", topic, *reader, *codec, stdin=lines)
    printed = [f"print.{part}=true" for part in ("key", "headers")] + ["null.literal=NULL"]
    formatter = [word for setting in printed for word in ("--formatter-property", setting)]
    asked = ("--topic", topic, "--from-beginning", "--max-messages", "2", "--group", group)
    static = ("--command-property", "group.instance.id=one")
    assert kafka_tool("console-consumer", bootstrap, *asked, *formatter, *static) == lines
    assert " one" in kafka_tool("consumer-groups", bootstrap, "--describe", "--group", group, "--members", "--verbose")
    server = ("--bootstrap-server", bootstrap)
    again = apache_kafka.tool("topics", *server, "--create", "--topic", topic, check=False)
    assert again.returncode == 1
    assert "already exists" in again.stdout + again.stderr


@pytest.mark.timeout(200)
def test_java_performance_tools(bootstrap: str, name: Name) -> None:
    topic = name("perf")
    foreign.require("java", "mvn")
    count = ("--num-records", "20000")
    sizes = ("--record-size", "100", "--throughput", "-1", "--topic", topic)
    apache_kafka.tool("producer-perf-test", *count, *sizes, "--producer-props", f"bootstrap.servers={bootstrap}")
    read = kafka_tool("consumer-perf-test", bootstrap, "--topic", topic, "--num-records", "20000", "--timeout", "20000")
    assert ", 20000, " in read
