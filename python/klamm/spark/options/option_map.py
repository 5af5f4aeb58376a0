"""Options by name, and what is said to a person about those that are wrong. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from klamm.spark.options.format_options import SECRETS

_T = TypeVar("_T")
_MAY_BE_SECRET: Final = re.compile(r"secret|password|token|jaas|auth|access.?key|keystore|\.pem$|^schema\.registry\.")
"""Of names that are not known: what was meant for such an option is not repeated."""
_OF_AN_ADDRESS: Final = re.compile(r"//[^/@,]*@")
"""The user and password in front of a host."""


class OptionError(ValueError):
    """An option is wrong; the message names it, its value and the way out."""


class OptionMap:
    """Options by the names that the documentation has; every failure names the option and its value."""

    def __init__(self, given: Mapping[str, str], known: Mapping[str, str]) -> None:
        """`known`: names by their small letters, beside kafka.*. Raises OptionError for others."""
        self.given = {name.lower(): value for name, value in given.items()}
        for name, value in self.given.items():
            if not name.startswith("kafka.") and name not in known:
                told = "" if _MAY_BE_SECRET.search(name) else f" ('{value}')"
                raise OptionError(f"option '{name}'{told} is not known{_guess(name, known)}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.given

    def get(self, name: str, read: Callable[[str], _T], default: _T) -> _T:
        """The option's value as `read` reads it, whose ValueError says what is wrong."""
        value = self.given.get(name.lower())
        if value is None:
            return default
        try:
            return read(value.strip())
        except ValueError as error:
            raise self.error(name, str(error)) from None

    def error(self, name: str, why: str) -> OptionError:
        """What is wrong with an option that is there."""
        value = "(not shown)" if name in SECRETS else f"'{_OF_AN_ADDRESS.sub('//', self.given[name.lower()])}'"
        return OptionError(f"option '{name}' is {value}: {why}")

    def missing(self, name: str, why: str) -> OptionError:
        """What an option that is not there is needed for."""
        return OptionError(f"option '{name}' is missing: {why}")


def _guess(name: str, known: Mapping[str, str]) -> str:
    """The way out for a name that is not known, from those that are, by their small letters."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{known[close[0]]}'?" if close else f"; known are kafka.* and {', '.join(known.values())}"
