"""What a pipeline's own session does not print to the terminal."""

from __future__ import annotations

import logging

import pytest

from klamm.pipelines.session import _py4j_told_once


def test_py4j_does_not_log_exceptions_that_it_raises(caplog: pytest.LogCaptureFixture) -> None:
    py4j = logging.getLogger("py4j.clientserver")
    with _py4j_told_once():
        logging.getLogger().error("KeyboardInterrupt while sending command.")
        py4j.error("Exception occurred while shutting down connection")
        py4j.error("Could not authenticate connection.")
    py4j.error("Exception occurred while shutting down connection")
    said = ["Could not authenticate connection.", "Exception occurred while shutting down connection"]
    assert caplog.messages == said
