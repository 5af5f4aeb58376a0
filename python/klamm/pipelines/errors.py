"""What goes wrong in a pipeline, as one line for a person."""

from __future__ import annotations

import re
from typing import Final

from klamm.admin.connection import ClientError

_WHERE_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*): (.*)$")
_OF_PYTHON: Final = "Traceback (most recent call last)"
_OF_PY4J: Final = "An error occurred while calling "
_OF_JAVA: Final = re.compile(r"^(?:: |Caused by: )(?:[\w$]+\.)+([\w$]+)(?:: (.*))?$", re.MULTILINE)
_LOST_TASK: Final = re.compile(
    r"Job aborted due to stage failure: .*Lost task .* executor \S+\): (?:[\w$]+\.)+([\w$]+): "
)
_WORKER_DIED: Final = "Python worker exited unexpectedly"


class PipelineError(ClientError):
    """A pipeline cannot go on; the text names the thing, the value and the way out."""


def reason(error: BaseException) -> str:
    """What a failed Spark job says went wrong, without the stacks of two languages around it.

    An exception of Python code in a task or a planner comes back as text, its traceback in the middle of Java's: the
    last line of that traceback that is not indented is the exception. A process that died has none.
    """
    text = str(error)
    if _OF_PYTHON in text:
        return _of_python(text)
    if _WORKER_DIED in text:
        return (
            "a Python process of Spark's died in the middle of its work: it was killed, or crashed. Most often the "
            "system had no memory left for it, and its log says so; fewer tasks at once (local[n]) need less"
        )
    if text.startswith(_OF_PY4J) and (told := _of_java(text)):
        return told
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__)


def _of_java(text: str) -> str:
    """The innermost exception that says anything, and its kind; empty without one."""
    said = [(kind, message) for kind, message in _OF_JAVA.findall(text) if message]
    if not said:
        return ""
    kind, message = said[-1]
    lost = _LOST_TASK.match(message)
    return f"{message} ({kind})" if lost is None else f"{message[lost.end() :]} ({lost[1]})"


def _of_python(text: str) -> str:
    told = ""
    for line in text[text.rindex(_OF_PYTHON) :].splitlines()[1:]:
        found = _WHERE_RAISED.match(line)
        if found is not None and not told:
            told = found[2] or found[1]
        elif told and (not line.strip() or line.lstrip().startswith(("at ", "SQLSTATE"))):
            break
        elif told:
            told += " " + line.strip()
    return told or text.splitlines()[0]
