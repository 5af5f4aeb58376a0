"""`klamm start`: read the configuration, prepare the folder, run the node. Imports only what serving needs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from klamm._engine import StorageError
from klamm.cli.node import process
from klamm.cli.terminal.log_levels import log_levels
from klamm.config import rules, sources
from klamm.config.listeners import check_ports
from klamm.config.node_config import NodeConfig, NodeConfigError
from klamm.formats.directories import is_blank
from klamm.formats.meta_properties import message_of
from klamm.node.boot import Booting
from klamm.protocol.named_tuple import NamedTuple


class UsageError(ValueError):
    """A command line that says nothing that `start` understands."""


class StartOptions(NamedTuple):
    """What `klamm start` was told."""

    file: Path | None = None
    overrides: Sequence[str] = ()
    data: Path | None = None
    port: int | None = None


def start(arguments: Sequence[str]) -> int:
    """Run a node until it is told to stop. The exit code: 0 after a controlled shutdown, 2 for a wrong command line."""
    try:
        return start_with(parse(arguments))
    except UsageError as error:
        return _complain(f"{error}\nTry: klamm start --help", 2)


def start_with(options: StartOptions) -> int:
    """Run a node with these options. The exit code."""
    signals = process.StopSignals()
    try:
        config = load(options)
        log_levels(config)
        try:
            booting = _begin(config, may_format=options.file is None)
        finally:
            # Whatever comes of it: a key that was ignored may be why.
            _say_what_was_read(config, set() if options.file else set(sources.embedded_default()))
    except (NodeConfigError, StorageError) as error:
        return _complain(str(error), 1)
    except OSError as error:
        return _complain(message_of(error), 1)
    else:
        return _run(config, booting, signals)
    finally:
        signals.forget()


def parse(arguments: Sequence[str]) -> StartOptions:
    """The options of `klamm start [FILE] [--override k=v]... [--data DIR] [--port N]`. Raises UsageError."""
    file, overrides, data, port = None, list[str](), None, None
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name in ("--override", "-o", "--data", "--port"):
            if not equals and not words:
                raise UsageError(f"{name} needs a value")
            value = value if equals else words.pop(0)
            if name == "--data":
                data = Path(value)
            elif name == "--port":
                port = _port(value)
            else:
                overrides.append(value)
        elif word.startswith("-"):
            raise UsageError(f"there is no option {word}")
        elif file is None:
            file = Path(word)
        else:
            raise UsageError(f"one file is enough, but there are {file} and {word}")
    return StartOptions(file, tuple(overrides), data, port)


def load(options: StartOptions) -> NodeConfig:
    """The configuration of these options and of the environment. Raises NodeConfigError."""
    config = sources.load(
        options.file, environment=os.environ, overrides=options.overrides, data=options.data, port=options.port
    )
    rules.check_supported(config)
    return config


def _port(value: str) -> int:
    if not value.isdecimal() or int(value) > 65535:
        raise UsageError(f"--port {value} is not within 0 and 65535")
    return int(value)


def _begin(config: NodeConfig, *, may_format: bool) -> Booting:
    """The engine begins; what is imported from here on is imported beside it."""
    if may_format and is_blank(config.all_dirs):
        from klamm.formats.storage import format_blank

        check_ports(config.listeners)
        format_blank(config)
    _allow_open_files()
    return Booting(config)


def _say_what_was_read(config: NodeConfig, not_of_the_user: set[str]) -> None:
    process.import_asyncio()
    import logging

    from klamm.cli.terminal import logs

    logs.configure(config)
    log = logging.getLogger("klamm.start")
    for warning in rules.warnings(config):
        log.warning(warning)
    names = set(rules.without_effect(config)) - not_of_the_user
    if names:
        log.info("known but without effect in klamm yet: %s", ", ".join(sorted(names)))


def _run(config: NodeConfig, booting: Booting, signals: process.StopSignals) -> int:
    try:
        from klamm.node.start import run

        return run(config, booting, signals, process.settle)
    finally:
        booting.abandon()


def _allow_open_files() -> None:
    """As many as the system grants at all, as a JVM does: the soft limit is mostly 1024, for those who use select()."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where there is no hard limit the system may have another one, which it does not tell.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _complain(text: str, code: int) -> int:
    for line in text.splitlines():
        print(f"klamm: {line}", file=sys.stderr)
    return code
