"""Ports of this machine that nobody uses, for programs that must know each other's before they start."""

from __future__ import annotations

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """That many; all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
