"""Runs a node as a process until a signal stops it or it fails."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, Protocol

from klamm._engine import __version__
from klamm._engine.quorum import StorageError
from klamm.config.listeners import WILDCARDS
from klamm.config.node_config import NodeConfig
from klamm.formats.meta_properties import message_of
from klamm.node.boot import Booting
from klamm.node.node import Node, NodeFailedError

log = logging.getLogger("klamm.start")


class Signals(Protocol):
    """The signals that stop the process."""

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Call `tell` at the first signal, also while other code runs; at once if it has already arrived."""
        ...

    def restore(self) -> None:
        """Restore the default handling of signals."""
        ...


def run(config: NodeConfig, booting: Booting, signals: Signals, on_serving: Callable[[], None]) -> int:
    """Run until a signal; returns the exit code. The first signal is a controlled shutdown, a second ends at once."""
    try:
        return asyncio.run(_run(config, booting, signals, on_serving))
    except (StorageError, NodeFailedError) as error:
        print(f"klamm: {error}", file=sys.stderr)
    except OSError as error:
        print(f"klamm: {message_of(error)}", file=sys.stderr)
    return 1


async def _run(config: NodeConfig, booting: Booting, signals: Signals, on_serving: Callable[[], None]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals.on_stop(partial(loop.call_soon_threadsafe, stop.set))
    node = Node(config, booting)
    starting = asyncio.ensure_future(node.start())
    stopping = asyncio.ensure_future(stop.wait())
    begins: set[asyncio.Future[Any]] = {starting, stopping}
    await asyncio.wait(begins, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        return 0
    starting.result()
    on_serving()
    _print_summary(node)
    await _until_done_or_failed(node, stopping)
    signals.restore()
    log.info("stopping")
    stopped = asyncio.ensure_future(node.stop())
    await _until_done_or_failed(node, stopped)
    stopped.result()
    log.info("stopped")
    return 0


async def _until_done_or_failed(node: Node, awaited: asyncio.Future[Any]) -> None:
    """Wait for `awaited`. If the node fails meanwhile, the process ends at once, like a crash.

    An orderly stop would wait for other nodes and for the disk with a state that cannot be trusted. Acknowledged
    records are on disk already. Apache Kafka halts as well.
    """
    await asyncio.wait({awaited, node.failed}, return_when=asyncio.FIRST_COMPLETED)
    if node.failed.done():
        _halt(f"klamm: {node.failed.exception()}")


def _halt(last_line: str) -> NoReturn:
    try:
        logging.shutdown()
        sys.stdout.flush()
        print(last_line, file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def _print_summary(node: Node) -> None:
    config = node.config
    listeners = config.client_listeners or config.controller_listeners
    bound = [node.listeners[one.name] for one in listeners]
    lines = [
        f"klamm {__version__}, cluster {node.cluster_id}, node {config.node_id}",
        f"  listening   {', '.join(_address(*one) for one in bound)}{'' if config.is_broker else ' (controller)'}",
        f"  data        {', '.join(map(str, config.partition_dirs or [config.metadata_log_dir]))}",
    ]
    if config.is_broker:
        lines.append(f"  try         klamm topics create hello --bootstrap {_here(*bound[0])}")
    text = "\n".join([*lines, "  stop        Ctrl-C"])
    try:
        print(text, flush=True)
    except OSError as error:
        log.warning("cannot print the addresses of the node to stdout: %s", message_of(error))
        # The rest of the buffer would fail again when the process ends.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _here(host: str, port: int) -> str:
    """The address to connect to from this machine: 0.0.0.0 and :: are not addresses to connect to."""
    return _address("localhost" if host in WILDCARDS else host, port)
