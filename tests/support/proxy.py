"""A proxy in front of a node's port, whose connections a test cuts: data is lost, and neither side is notified."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import Final

HOST: Final = "127.0.0.1"
_READ_BYTES: Final = 1 << 16
_LOOK_S: Final = 0.05


class Proxy:
    """Forwards connections to a port, unless they are cut. Runs in a thread of this process."""

    def __init__(self, port: int) -> None:
        """`port`: the node's port on this machine."""
        self._to = port
        self._listener = socket.create_server((HOST, 0))
        self.port: Final[int] = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._is_cut = threading.Event()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """From now on nothing is forwarded. Connections stay open, and new ones are accepted, as with packet loss."""
        self._is_cut.set()

    def heal(self) -> None:
        """Reset the connections that were cut, because data of theirs is missing; new ones are forwarded."""
        self._is_cut.clear()

    def close(self) -> None:
        """Stop the proxy."""
        self._is_closed.set()
        self._thread.join()

    def _run(self) -> None:
        was_cut = False
        while not self._is_closed.is_set():
            ready = [key.fileobj for key, _ in self._selector.select(_LOOK_S)]
            if self._is_cut.is_set():
                was_cut = True
                self._is_closed.wait(_LOOK_S)  # nothing is read, so that the sender's buffers fill up
                continue
            if was_cut:
                was_cut = False
                for one in list(self._pairs):
                    self._drop(one)
            for one in ready:
                if one is self._listener:
                    self._accept()
                elif one in self._pairs:
                    assert isinstance(one, socket.socket)
                    self._forward(one)
        for one in list(self._pairs):
            self._drop(one)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            node = socket.create_connection((HOST, self._to), 5)
        except OSError:
            client.close()
            return
        for one, other in ((client, node), (node, client)):
            self._pairs[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, one: socket.socket) -> None:
        try:
            data = one.recv(_READ_BYTES)
            if data:
                self._pairs[one].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(one)

    def _drop(self, one: socket.socket) -> None:
        for each in (one, self._pairs.get(one)):
            if each is not None and self._pairs.pop(each, None) is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(each)
                each.close()
