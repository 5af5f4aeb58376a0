"""kio is imported late, and alone."""

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

ALONE = """
from klamm.cli.node.process import begin, settle
begin()
from klamm.protocol.wire.codec import build, encode
from klamm.protocol.wire.kio_classes import request_class, response_class
settle()
for cls in (request_class(19, 7), response_class(19, 7)):
    assert encode(build(cls))
    assert cls.__doc__ == cls.__name__
import dataclasses
@dataclasses.dataclass
class Late:
    size: int
assert Late.__doc__ == "Late(size: int)"
import inspect
assert dataclasses.inspect is inspect
"""


def test_the_first_message_does_not_import_what_tests_are_written_with() -> None:
    run(SCRIPT)


def test_the_first_message_takes_no_signatures_and_those_of_others_stay() -> None:
    run(ALONE)


def run(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
