from __future__ import annotations

from pathlib import Path

import pytest

from klamm.pipelines.bench.side import Side, SideFailedError, Started


def test_a_side_that_died_between_jobs_is_reported_with_its_log(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("""#!/bin/sh
exec 0<&-
echo 'java.lang.OutOfMemoryError: Java heap space' >&2
echo '{"spark": "4.3.0"}'
""")
    program.chmod(0o755)
    with (
        Side(Started("klamm", "klamm", program, {}), tmp_path / "log") as side,
        pytest.raises(
            SideFailedError, match=r"^Spark of side klamm ended: java\.lang\.OutOfMemoryError: Java heap space$"
        ),
    ):
        side.run({"kind": "read"})
