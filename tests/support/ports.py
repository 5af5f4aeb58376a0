"""Ports for nodes that tests start: no two tests get the same one, and the system assigns none of them meanwhile."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

_LOWEST = 10_000
_GIVEN_AWAY = Path("/proc/sys/net/ipv4/ip_local_port_range")
_held: set[int] = set()


def free_port(*further: int) -> int:
    """A free port, reserved for this process until it ends.

    `further`: offsets of more ports that must be free and reserved too.

    It is below the ephemeral range from which the system assigns ports, so that it stays free until a node binds it.
    Locks keep other processes that call this from taking the same port.
    """
    while True:
        port = random.randrange(_LOWEST, _below() - max(further, default=0))
        taken = [each for each in (port, *(port + above for above in further)) if each not in _held and _take(each)]
        if len(taken) == 1 + len(further) and all(map(_is_free, taken)):
            return port
        for each in taken:
            _give_back(each)


def _below() -> int:
    return int(_GIVEN_AWAY.read_text().split()[0]) if _GIVEN_AWAY.exists() else 32_768


@cache
def _locks() -> int:
    """A file whose byte N is locked by the process that holds port N: one descriptor for any number of ports."""
    path = Path(tempfile.gettempdir()) / f"klamm-ports-{os.getuid()}.lock"
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _take(port: int) -> bool:
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _held.add(port)
    return True


def _give_back(port: int) -> None:
    fcntl.lockf(_locks(), fcntl.LOCK_UN, 1, port)
    _held.discard(port)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
