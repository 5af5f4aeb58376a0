"""kio is imported late, and without its test dependencies."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from klamm.protocol.wire.kio_classes import request_class
before = list(sys.meta_path)
assert not any(name.partition(".")[0] == "kio" for name in sys.modules)
assert request_class(18, 3).__name__ == "ApiVersionsRequest"
assert "hypothesis" not in sys.modules
assert sys.meta_path == before
import hypothesis
"""


def test_the_first_message_does_not_import_test_libraries() -> None:
    run(SCRIPT)


def run(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
