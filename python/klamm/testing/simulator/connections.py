"""The connections of one life of a simulated process, as asyncio makes them for `PeerTransport`.

A request leaves as a message of the world; its answer comes back as a frame. What breaks, and who is told, the network
decides.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol

from klamm.protocol.wire.codec import build, encode
from klamm.protocol.wire.kio_classes import request_class, response_class
from klamm.raft.messages import ApiVersionsRequest, Request, Response
from klamm.raft.wire.requests import VERSIONS, decode_request
from klamm.raft.wire.responses import encode_response

LISTENER: Final = "CONTROLLER"
API_VERSIONS: Final = 18
ANY_PORT: Final = 0  # wherever the process listens on that host
_HEAD: Final = struct.Struct(">ihhih")  # size, API, version, correlation id, size of the client's id

Dialed = Callable[[int | None], None]
"""Takes the life of the process that accepted the connection; None when it was refused."""


class Owner(Protocol):
    """The process."""

    def dial(self, node_id: int, port: int, on_dialed: Dialed) -> None:
        """Try to connect; `on_dialed` is called once, or never when nothing comes back."""

    def ask(self, connection: SimulatedConnection, correlation_id: int, request: Request) -> None:
        """Put a request on its way."""


class SimulatedConnection(asyncio.Transport):
    """This side's end of a connection that stands."""

    def __init__(self, number: int, address: tuple[int, int], life: int, owner: Owner, protocol: Any) -> None:
        """`address`: node id and port; `life`: of the process that accepted it; `protocol`: the product's."""
        super().__init__()
        self.number, self.node_id, self.life = number, address[0], life
        self._port, self._owner, self._protocol = address[1], owner, protocol
        self._loop = asyncio.get_running_loop()
        self._asked: dict[int, tuple[int, int]] = {}  # API and version by correlation id
        self.is_over = False

    def write(self, data: Any) -> None:
        """A whole request."""
        _, api_key, version, correlation_id, name_size = _HEAD.unpack_from(data)
        self._asked[correlation_id] = api_key, version
        if (api_key, version) == (API_VERSIONS, 0):  # the question of the connection itself
            self._loop.call_soon(self._give, correlation_id, _offered())
            return
        flexible = request_class(api_key, version).__header_schema__.__version__ - 1
        body = bytes(data[_HEAD.size + name_size + flexible :])
        request = ApiVersionsRequest() if api_key == API_VERSIONS else decode_request(api_key, version, body).message
        if request is None:
            raise AssertionError(f"API {api_key} was asked about another partition than the quorum's")
        self._owner.ask(self, correlation_id, request)

    def on_answer(self, correlation_id: int, response: Response) -> None:
        """The answer to a request has arrived."""
        if not self.is_over and correlation_id in self._asked:
            self._give(correlation_id, encode_response(response, self._asked[correlation_id][1], LISTENER))

    def lose(self) -> None:
        """It breaks, and this side notices."""
        if not self.is_over:
            self.is_over = True
            self._protocol.connection_lost(None)

    def abort(self) -> None:
        """See `asyncio.WriteTransport.abort`."""
        if not self.is_over:
            self.is_over = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.BaseTransport.get_extra_info`."""
        return (f"node-{self.node_id}", self._port) if name == "peername" else default

    def _give(self, correlation_id: int, body: bytes) -> None:
        api_key, version = self._asked.pop(correlation_id)
        tags = b"\x00" * response_class(api_key, version).__header_schema__.__version__
        if not self.is_over:
            self._protocol.data_received(struct.pack(">ii", 4 + len(tags) + len(body), correlation_id) + tags + body)


class Connections:
    """Those that a life has made. To be made and used on its loop."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._made: dict[int, SimulatedConnection] = {}

    async def create(self, new_protocol: Callable[[], Any], host: str, port: int) -> tuple[SimulatedConnection, Any]:
        """See `asyncio.AbstractEventLoop.create_connection`. Raises ConnectionRefusedError."""
        dialed: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

        def on_dialed(life: int | None) -> None:
            if not dialed.done():
                dialed.set_result(life)

        node_id = int(host.removeprefix("node-"))
        self._owner.dial(node_id, port, on_dialed)
        life = await dialed
        if life is None:
            raise ConnectionRefusedError(f"nothing listens at {host}:{port}")
        number, protocol = len(self._made), new_protocol()
        made = self._made[number] = SimulatedConnection(number, (node_id, port), life, self._owner, protocol)
        protocol.connection_made(made)
        return made, protocol

    def on_answer(self, number: int, correlation_id: int, response: Response) -> None:
        """An answer has arrived by that connection."""
        self._made[number].on_answer(correlation_id, response)

    def lose(self, number: int) -> None:
        """That connection breaks."""
        self._made[number].lose()

    def lose_all_to(self, node_id: int) -> None:
        """Every connection to that node breaks."""
        for connection in self._made.values():
            if connection.node_id == node_id:
                connection.lose()


@cache
def _offered() -> bytes:
    """What a listener says that it speaks."""
    rows = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in sorted(VERSIONS.items())]
    return encode(build(response_class(API_VERSIONS, 0), api_keys=rows))
