"""What goes wrong in a pipeline, as one line for a person."""

from __future__ import annotations

from klamm.client import ClientError


class PipelineError(ClientError):
    """A pipeline cannot go on; the text names the thing, the value and the way out."""
