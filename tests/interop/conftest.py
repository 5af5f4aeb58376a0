"""What tests beside Apache Kafka share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.apache_kafka import Tools
from tests.support.foreign import require


@pytest.fixture(scope="session")
def tools() -> Iterator[Tools]:
    """Apache Kafka's command line tools, started once."""
    require("java", "javac", "mvn")
    with Tools() as started:
        yield started
