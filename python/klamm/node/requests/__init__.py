"""From a request of the engine to its response: dispatch, handlers, forwarding."""
