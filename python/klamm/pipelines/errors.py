"""The exception for a pipeline's failure, as one line for the user."""

from __future__ import annotations

from klamm.client import ClientError


class PipelineError(ClientError):
    """A pipeline cannot continue; the message names the cause, its value and the way out."""
