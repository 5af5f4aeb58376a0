"""Fixtures for tests with Apache Kafka."""

from __future__ import annotations

import pytest

from tests.interop.apache_kafka import TOOLS_TOGETHER, Tools
from tests.support.foreign import require


@pytest.fixture(scope="session")
def tools() -> Tools:
    """Apache Kafka's command line tools."""
    require("java", "javac", "mvn")
    return TOOLS_TOGETHER
