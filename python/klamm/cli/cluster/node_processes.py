"""The processes of a cluster's nodes, started and stopped together."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from klamm.cli.cluster.cluster_folder import ClusterFolder, NodeFolder

_LOOK_S: Final = 0.02
_TAIL_BYTES: Final = 4096


class NodeProcess:
    """`klamm start` for one node. It is in a session of its own, so that Ctrl-C is not sent to it."""

    def __init__(self, node: NodeFolder) -> None:
        """Start it."""
        self.node = node
        with node.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "klamm", "start", str(node.properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid: Final = self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Negative: the signal that ended it. None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Request a controlled shutdown."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def ended(self) -> str | None:
        """How it ended, with its last line; None while it runs."""
        code = self.exit_code
        if code is None:
            return None
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return f"ended with {how}: {self._last_line()}"

    def _last_line(self) -> str:
        with self.node.output.open("rb") as output:
            output.seek(max(output.seek(0, 2) - _TAIL_BYTES, 0))
            lines = output.read().decode(errors="replace").splitlines()
        return lines[-1] if lines else str(self.node.output)


class NodeProcesses:
    """All nodes of a folder. A node that is added to the folder is started by `update`."""

    def __init__(self, folder: ClusterFolder) -> None:
        self._folder = folder
        self.by_id: dict[int, NodeProcess] = {}

    def update(self) -> None:
        """Start the nodes that were never started."""
        for node in self._folder.nodes():
            if node.id not in self.by_id:
                self.by_id[node.id] = NodeProcess(node)

    @property
    def running(self) -> Sequence[NodeProcess]:
        """The processes that have not ended."""
        return [process for process in self.by_id.values() if process.exit_code is None]

    def stop(self) -> None:
        """Stop the brokers with a controlled shutdown, then the controllers, which that needs; and wait for them."""
        for is_broker in (True, False):
            stopping = [one for one in self.running if one.node.config().is_broker is is_broker]
            for process in stopping:
                process.stop()
            while any(process.exit_code is None for process in stopping):
                time.sleep(_LOOK_S)

    def kill(self) -> None:
        """End them at once."""
        for process in self.running:
            process.kill()
