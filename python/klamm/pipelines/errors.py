"""What goes wrong in a pipeline, as one line for a person."""

from __future__ import annotations

import re
from typing import Final

from klamm.admin.connection import ClientError

_WHERE_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*): (.*)$")
_OF_PYTHON: Final = "Traceback (most recent call last)"


class PipelineError(ClientError):
    """A pipeline cannot go on; the text names the thing, the value and the way out."""


def reason(error: BaseException) -> str:
    """What a failed Spark job says went wrong, without the stacks of two languages around it.

    An exception of Python code in a task or a planner comes back as text, its traceback in the middle of Java's: the
    last line of that traceback that is not indented is the exception.
    """
    text = str(error)
    if _OF_PYTHON not in text:
        return next((line for line in text.splitlines() if line.strip()), type(error).__name__)
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
