"""The cause of a failed Spark job, as one sentence."""

from __future__ import annotations

import re
from typing import Final

_WHERE_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*): (.*)$")
_OF_PYTHON: Final = "Traceback (most recent call last)"
_OF_PY4J: Final = "An error occurred while calling "
_OF_JAVA: Final = re.compile(r"^(?:: |Caused by: )(?:[\w$]+\.)+([\w$]+)(?:: (.*))?$", re.MULTILINE)
_LOST_TASK: Final = re.compile(
    r"Job aborted due to stage failure: .*Lost task .* executor \S+\): (?:[\w$]+\.)+([\w$]+): "
)
_CONDITION: Final = re.compile(r"^(?:\([\w.$]+\) )?\[[A-Z][A-Z0-9_.]+\] ")
"""The name of a Spark error, preceded by the class of its exception with Spark Connect."""
_SQL_STATE: Final = re.compile(r";? SQLSTATE: [0-9A-Z]{5}.*$", re.DOTALL)
_WORKER_DIED: Final = "Python worker exited unexpectedly"


def reason(error: BaseException) -> str:
    """The sentence that states why a Spark job failed, without Java's and Python's stack traces.

    `error`: an exception of PySpark or py4j, or one raised from it. An exception of Python code in a task or a planner
    arrives as text, with its traceback inside Java's: the last line of that traceback without indentation is the
    exception. A process that died has none.
    """
    return _of_text(_innermost(error)) or type(error).__name__


def _innermost(error: BaseException) -> str:
    """The text of the Spark exception from which `error` was raised, otherwise of `error`."""
    seen: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in seen:
        if type(at).__module__.startswith(("pyspark", "py4j")):
            return str(at)
        seen.append(at)
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return str(error)


def _of_text(text: str) -> str:
    if _OF_PYTHON in text:
        return _of_python(text)
    if _WORKER_DIED in text:
        return (
            "a Python process of Spark's died in the middle of its work: it was killed, or crashed. Most often the "
            "system had no memory left for it, and its log says so; fewer tasks at once (local[n]) need less"
        )
    if text.startswith(_OF_PY4J) and (message := _of_java(text)):
        return _bare(message)
    return _bare(next((line for line in text.splitlines() if line.strip()), ""))


def _bare(line: str) -> str:
    """A message of Spark without its condition and SQL state."""
    return _SQL_STATE.sub("", _CONDITION.sub("", line)).strip()


def _of_java(text: str) -> str:
    """The innermost exception with a message, and its class; empty if there is none."""
    exceptions = [(kind, message) for kind, message in _OF_JAVA.findall(text) if message]
    if not exceptions:
        return ""
    kind, message = exceptions[-1]
    lost = _LOST_TASK.match(message)
    return f"{message} ({kind})" if lost is None else f"{message[lost.end() :]} ({lost[1]})"


def _of_python(text: str) -> str:
    message = ""
    for line in text[text.rindex(_OF_PYTHON) :].splitlines()[1:]:
        found = _WHERE_RAISED.match(line)
        if found is not None and not message:
            message = found[2] or found[1]
        elif message and (not line.strip() or line.lstrip().startswith(("at ", "SQLSTATE"))):
            break
        elif message:
            message += " " + line.strip()
    return _bare(message or text.splitlines()[0])
