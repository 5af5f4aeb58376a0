"""`klamm start`: read the configuration, prepare the folder, run the node. Imports only what serving needs."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from klamm._engine.quorum import StorageError
from klamm.cli.node import process
from klamm.cli.terminal.log_levels import log_levels
from klamm.config import rules, sources
from klamm.config.listeners import check_ports
from klamm.config.node_config import NodeConfig, NodeConfigError
from klamm.formats.directories import is_blank
from klamm.formats.meta_properties import message_of
from klamm.node.boot import Booting
from klamm.protocol.value import Value


class UsageError(ValueError):
    """A command line that `start` does not understand."""


class StartOptions(Value):
    """The options of `klamm start`."""

    file: Path | None = None
    overrides: Sequence[str] = ()
    data: Path | None = None
    port: int | None = None


def start(arguments: Sequence[str]) -> int:
    """Run a node until a signal stops it. Returns the exit code: 0 after a controlled shutdown, 2 for a wrong line."""
    try:
        return start_with(parse(arguments))
    except UsageError as error:
        return _print_error(f"{error}\nTry: klamm start --help", 2)


def start_with(options: StartOptions) -> int:
    """Run a node with these options. Returns the exit code."""
    signals = process.StopSignals()
    try:
        config = load(options)
        log_levels(config)
        try:
            booting = _begin(config, may_format=options.file is None)
        finally:
            # Log it also after a failure: an ignored key may be the cause.
            _log_ignored_keys(config, set() if options.file else set(sources.embedded_default()))
    except (NodeConfigError, StorageError) as error:
        return _print_error(str(error), 1)
    except OSError as error:
        return _print_error(message_of(error), 1)
    else:
        return _run(config, booting, signals)
    finally:
        signals.restore()


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
            raise UsageError(f"unknown option {word}")
        elif file is None:
            file = Path(word)
        else:
            raise UsageError(f"only one file is allowed, not {file} and {word}")
    return StartOptions(file, tuple(overrides), data, port)


def load(options: StartOptions) -> NodeConfig:
    """The configuration from these options and the environment. Raises NodeConfigError."""
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
    """Start the engine's boot; later imports run in parallel with it."""
    if may_format and is_blank(config.all_dirs):
        from klamm.formats.storage import format_blank

        check_ports(config.listeners)
        format_blank(config)
    _allow_open_files()
    return Booting(config)


def _log_ignored_keys(config: NodeConfig, not_of_the_user: set[str]) -> None:
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

        return run(config, booting, signals, process.serve)
    finally:
        booting.abandon()


def _allow_open_files() -> None:
    """Raise the limit of open files to the hard limit, as a JVM does: the soft limit is usually 1024, for select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Without a hard limit, the system may have another one that it does not report.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _print_error(text: str, code: int) -> int:
    for line in text.splitlines():
        print(f"klamm: {line}", file=sys.stderr)
    return code
