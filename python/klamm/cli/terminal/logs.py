"""Writes klamm's log to stderr at the command line: one line per event, as text or JSON."""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

from klamm.cli.terminal.log_levels import LEVELS, log_levels
from klamm.config.node_config import NodeConfig

_NAMES: Final = {number: name for name, number in LEVELS.items()} | {logging.CRITICAL: "FATAL"}


def configure(config: NodeConfig) -> None:
    """Write klamm's log to stderr as the keys `klamm.log.*` configure. Raises NodeConfigError."""
    levels = log_levels(config)
    is_json = config.text("klamm.log.format") == "json"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if is_json else LineFormatter())
    root = logging.getLogger("klamm")
    root.handlers = [handler]
    root.propagate = False
    root.setLevel(levels.whole)
    for name, level in levels.parts.items():
        logging.getLogger(name).setLevel(level)


class LineFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO  node  message`, followed by the exception on the same line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message contains."""
        seconds = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        text = f"{seconds}.{int(record.msecs):03d} {_level(record):5s} {_part(record):10s} {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            text += f" | {self.formatException(record.exc_info)}"
        return text.replace("\n", " \\n ")


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (ISO 8601, UTC), level, logger, message, and the exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": _level(record),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = self.formatException(record.exc_info)
        import json  # Not at the top: few nodes write JSON.

        return json.dumps(line, ensure_ascii=False)


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname)


def _part(record: logging.LogRecord) -> str:
    return record.name.removeprefix("klamm.")
