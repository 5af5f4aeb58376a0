"""A SparkSession for a pipeline: the existing one, or a quiet one of this process.

    with session("klamm mirror", quiet=True) as spark:
        spark.read.format("klamm")...

It knows `format("klamm")`. A session that was active, or that is given, is used as it is and left running; one that was
made here is stopped. Where a job fails, `klamm.spark.reason` says why in a line.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import klamm
from klamm.pipelines.errors import PipelineError
from klamm.spark.failures import reason
from klamm.spark.supported import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
_SHOWN_OF_LOG: Final = 5
_RAISED_TOO: Final = (
    "KeyboardInterrupt while sending command.",
    "Exception while sending command.",
    "Exception occurred while shutting down connection",
)
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Not shown in plans: sensitive keys of TLS and SASL, in addition to Spark's default.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore|ssl[.]key|private key",
}
_ON_THIS_MACHINE: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


@contextmanager
def session(
    name: str,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> Iterator[SparkSession]:
    """A session with klamm's data source registered, for the duration of the block.

    `master` and `conf` are for a session that is made here: without a master it is `local[*]`, or what `spark-submit`
    says. `quiet`: what Spark's JVM would write to the terminal goes to a file that is gone with it; for commands, since
    it changes the process's stderr while the JVM starts. Raises PipelineError where pyspark or Java are missing.
    """
    given = spark or _active()
    if given is not None:
        _register(given)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="klamm-spark-", ignore_cleanup_errors=True) as folder:
        with _interruptible():
            made = _make(name, master, dict(conf or {}), Path(folder), quiet)
        with _py4j_told_once():
            try:
                _register(made)
                yield made
            finally:
                with jvm_may_be_gone():
                    made.stop()


def _active() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as missing:
        raise PipelineError(f"this needs {missing.name}: pip install 'klamm[spark]'") from None
    try:
        check_pyspark()
    except ImportError as error:
        raise PipelineError(str(error)) from None
    return SparkSession.getActiveSession()


def _register(spark: SparkSession) -> None:
    from klamm.spark.source import KlammDataSource

    spark.dataSource.register(KlammDataSource)


def _make(name: str, master: str | None, conf: dict[str, str], folder: Path, quiet: bool) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is not None or not submitted:
        builder = builder.master(master or LOCAL)
    is_local = not submitted and (master or LOCAL).startswith("local")
    for key, value in (_QUIET | (_ON_THIS_MACHINE if is_local else {}) | conf).items():
        builder = builder.config(key, value)
    log = folder / "spark.log"
    try:
        with _environment(workers_environment(folder) if is_local else {}), _stderr_into(log if quiet else None):
            made = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        last = log.read_text(errors="replace").splitlines()[-_SHOWN_OF_LOG:] if log.exists() else []
        raise PipelineError(
            f"Spark does not start: {'; '.join(last) or reason(error)}. It needs a JDK 17 or newer, in PATH or where "
            f"JAVA_HOME ('{os.environ.get('JAVA_HOME', '')}') says"
        ) from None
    made.sparkContext.setLogLevel("ERROR")
    return made


@contextmanager
def _interruptible() -> Iterator[None]:
    """Keep the handler of Ctrl-C: PySpark's sends a request to the JVM, perhaps during another request."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if is_main else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


@contextmanager
def jvm_may_be_gone() -> Iterator[None]:
    """For calls into Spark's JVM: a signal to the process group may have ended the JVM, too."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError), warnings.catch_warnings(category=RuntimeWarning, action="ignore"):
        yield


@contextmanager
def _py4j_told_once() -> Iterator[None]:
    """py4j logs an interrupt, and the loss of the JVM, with a traceback before it raises the exception."""
    # It also logs with the root logger, and a filter applies to its own logger only.
    loggers = [logging.getLogger(name) for name in (None, "py4j.clientserver")]
    for logger in loggers:
        logger.addFilter(_is_worth_telling)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_worth_telling)


def _is_worth_telling(record: logging.LogRecord) -> bool:
    return record.msg not in _RAISED_TOO


def workers_environment(folder: Path) -> dict[str, str]:
    """Environment variables that make the workers on this machine use this Python with this process's klamm.

    The command drops the zip that Spark puts first in the path: each worker would compile pyspark from it, which takes
    a second of CPU.
    """
    if "PYSPARK_PYTHON" in os.environ:
        return {}
    paths = [str(Path(klamm.__path__[0]).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = folder / "python"
    path, python = shlex.quote(os.pathsep.join(paths)), shlex.quote(sys.executable)
    command.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {python} "$@"\n')
    command.chmod(0o755)
    return {"PYSPARK_PYTHON": str(command), "PYSPARK_DRIVER_PYTHON": sys.executable}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set them while the JVM starts, which inherits them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _stderr_into(file: Path | None) -> Iterator[None]:
    """Processes started in the block keep the file as their stderr."""
    if file is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with file.open("wb") as target:
            os.dup2(target.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
