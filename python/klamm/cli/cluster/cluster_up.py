"""`klamm cluster up`: create or start the nodes, show them, and stop them at the end."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Annotated, Final

from klamm.cli.cluster import status_table
from klamm.cli.cluster.cluster_commands import Data, ask
from klamm.cli.cluster.cluster_folder import DEFAULT_FOLDER, ClusterFolder, addresses
from klamm.cli.cluster.node_processes import NodeProcesses
from klamm.cli.cluster.status_table import NodeView, Row
from klamm.cli.framework.options import Option
from klamm.cli.terminal.exits import Exit
from klamm.cli.terminal.output import is_terminal, say
from klamm.client import ClientError
from klamm.config import sources
from klamm.config.node_config import NodeConfigError

BROKERS: Final = 3
_REFRESH_S: Final = 0.5

Show = Callable[[list[Row], str], None]


def up(
    *,
    brokers: Annotated[int | None, Option("--brokers", min=1, help="The number of brokers; 3 by default.")] = None,
    controllers: Annotated[
        int | None, Option("--controllers", min=1, help="The number of nodes that are controllers only.")
    ] = None,
    data: Data = DEFAULT_FOLDER,
    port: Annotated[
        int | None,
        Option("--port", min=1, help="The port of node 1; 9092 by default. Each further node uses ports 10 higher."),
    ] = None,
    override: Annotated[
        list[str] | None,
        Option("--override", "-o", metavar="KEY=VALUE", help="Set a configuration key of every node. May be repeated."),
    ] = None,
) -> None:
    """Create a cluster, or start it again, and run it until Ctrl-C.

    Without --controllers the brokers are controllers too. Topics have three
    replicas, of which two must be in sync, unless they say otherwise.

    \b
    [bold]Examples[/bold]
      klamm cluster up
      klamm cluster up --brokers 3 --controllers 3 --port 19092
      klamm cluster up --override log.retention.hours=24
    """
    folder = ClusterFolder(data)
    folder.path.mkdir(parents=True, exist_ok=True)
    locks = folder.lock()
    try:
        _prepare(folder, brokers, controllers, port, override or [])
        _run(folder)
    finally:
        locks.release()


def _prepare(
    folder: ClusterFolder, brokers: int | None, controllers: int | None, port: int | None, overrides: list[str]
) -> None:
    if not folder.nodes():
        try:
            parsed = dict(map(sources.parse_override, overrides))
        except NodeConfigError as error:
            raise ClientError(str(error)) from None
        folder.create(brokers or BROKERS, controllers, port or sources.DEFAULT_PORT, parsed)
    elif any(given is not None for given in (brokers, controllers, port)) or overrides:
        raise ClientError(
            f"the cluster in {folder.path} exists: start it without options, and change its server.properties; "
            "or name another folder with --data"
        )


def _run(folder: ClusterFolder) -> None:
    processes = NodeProcesses(folder)
    try:
        with _stop_signals() as stop, _display() as show:
            processes.update()
            configs = [process.node.config() for process in processes.by_id.values()]
            say(f"klamm cluster in {folder.path}: --bootstrap {addresses(configs)}; Ctrl-C stops it")
            while not stop.is_set() and processes.running:
                _show(processes, show)
                stop.wait(_REFRESH_S)
                processes.update()
            say("stopping; Ctrl-C again ends all nodes at once")
            processes.stop()
    finally:
        # After a second Ctrl-C, or a fault here.
        failed = [one for one in processes.by_id.values() if one.exit_code not in (None, 0)]
        processes.kill()
    for process in failed:
        say(f"node {process.node.id} {process.ended()}")
    if failed:
        raise Exit(1)


def _show(processes: NodeProcesses, show: Show) -> None:
    nodes = {
        node_id: NodeView(one.node.config(), one.pid if one.exit_code is None else None, one.ended())
        for node_id, one in processes.by_id.items()
    }
    cluster = ask(nodes)
    show(status_table.rows(nodes, cluster), status_table.summary(cluster))


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets. A second signal raises KeyboardInterrupt."""
    stop = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _display() -> Iterator[Show]:
    """A table that is kept up to date on a terminal; elsewhere a line for each change."""
    if not is_terminal(sys.stdout):
        yield _Changes().show
        return
    from rich.live import Live

    from klamm.cli.terminal.styled import console, table

    with Live(console=console, auto_refresh=False) as live:

        def show(rows: list[Row], summary: str) -> None:
            from rich.console import Group
            from rich.text import Text

            cells = [["-" if value is None else str(value) for value in row] for row in rows]
            live.update(Group(table(status_table.COLUMNS, cells), Text(summary)), refresh=True)

        yield show


class _Changes:
    """Prints what became different."""

    def __init__(self) -> None:
        self._states: dict[int, str] = {}

    def show(self, rows: list[Row], _: str) -> None:
        for row in rows:
            if self._states.get(row.id) != row.state:
                self._states[row.id] = row.state
                print(
                    f"node {row.id} ({row.roles}) on {row.address}, process {row.pid or '-'}: {row.state}", flush=True
                )
