"""A message between simulated replicas."""

from typing import NamedTuple

from klamm.raft.messages import Request, Response


class Envelope(NamedTuple):
    """A message on its way. `life` is the sender's life of a request, and the asker's of a response."""

    source: int
    target: int
    correlation_id: int
    life: int
    request: Request
    response: Response | None = None  # None: this is the request itself
    port: int | None = None  # that the request goes to; None: wherever the receiver listens
    connection: tuple[int, int] | None = None  # its number at the asker's, and the life that accepted it; None: none

    def answered(self, response: Response) -> "Envelope":
        """The answer to this request, on its way back."""
        return self._replace(source=self.target, target=self.source, response=response, port=None)
