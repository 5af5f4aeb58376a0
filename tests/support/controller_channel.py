"""A controller channel that calls the method named as the API."""

from __future__ import annotations

from typing import Any

from klamm.controller.operations.operation import Operation


class ChannelByName:
    """A `ControllerChannel`: BrokerHeartbeat calls `broker_heartbeat(request)`."""

    async def ask(self, operation: Operation[Any, Any], request: Any, timeout_ms: int = 0) -> Any:
        """Call the method and return its response."""
        return await getattr(self, operation.api_key.name.lower())(request)
