"""From a request of the engine to its answer: dispatch, handlers, forwarding."""
