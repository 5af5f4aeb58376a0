"""What a session of a pipeline's own keeps from the terminal."""

from __future__ import annotations

import logging

import pytest

from klamm.pipelines.session import _py4j_told_once


def test_what_py4j_raises_it_does_not_log_as_well(caplog: pytest.LogCaptureFixture) -> None:
    py4j = logging.getLogger("py4j.clientserver")
    with _py4j_told_once():
        logging.getLogger().error("KeyboardInterrupt while sending command.")
        py4j.error("Exception occurred while shutting down connection")
        py4j.error("Could not authenticate connection.")
    py4j.error("Exception occurred while shutting down connection")
    said = ["Could not authenticate connection.", "Exception occurred while shutting down connection"]
    assert caplog.messages == said
