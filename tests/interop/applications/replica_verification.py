"""Apache Kafka's kafka-replica-verification, which compares the replicas of a topic."""

from __future__ import annotations

import re
from pathlib import Path

from tests.interop.apache_kafka import LIBS, POM
from tests.interop.applications.processes import JavaProcess


class ReplicaVerification(JavaProcess):
    """It reads the topic from its beginning, and runs until it is stopped."""

    POM = POM
    LIBS = LIBS

    def __init__(self, folder: Path, servers: str, topic: str) -> None:
        options = "--topics-include", topic, "--time", "-2", "--report-interval-ms", "500"
        tool = "org.apache.kafka.tools.ReplicaVerificationTool"
        super().__init__(folder / "verification.out", tool, "--broker-list", servers, *options)

    def reports(self) -> list[int]:
        """The largest distance between what all replicas have and the high watermark, in each report."""
        return [int(lag) for lag in re.findall(r"max lag is (-?\d+) for", self.log())]

    def differences(self) -> list[str]:
        """What it complains about."""
        complaints = "doesn't match", "unmatched checksum", "Error in processing"
        return [line for line in self.log().splitlines() if any(text in line for text in complaints)]
