"""A message between simulated replicas."""

from typing import NamedTuple

from klamm.raft.messages import Request, Response


class Envelope(NamedTuple):
    """A message in flight. `life` is the life of the request's sender, for a response too."""

    source: int
    target: int
    correlation_id: int
    life: int
    request: Request
    response: Response | None = None  # None: this is the request itself
    port: int | None = None  # the port of a request; None: wherever the receiver listens
    connection: tuple[int, int] | None = None  # its number at the asker's, and the life that accepted it; None: none

    def answered(self, response: Response) -> "Envelope":
        """The response to this request."""
        ids = self.correlation_id, self.life
        return Envelope(self.target, self.source, *ids, self.request, response, connection=self.connection)
