"""Options by name, and error messages about invalid ones. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from klamm.spark.options.format_options import SECRETS

_T = TypeVar("_T")
_MAY_BE_SECRET: Final = re.compile(r"secret|password|token|jaas|auth|access.?key|keystore|\.pem$|^schema\.registry\.")
"""Unknown names that may be meant for a secret: their values are not repeated in messages."""
_OF_AN_ADDRESS: Final = re.compile(r"//[^/@,]*@")
"""The user and password in an address."""


class OptionError(ValueError):
    """An option is invalid; the message names it, its value and the way out."""


class OptionMap:
    """Options by their documented names; every error names the option and its value."""

    def __init__(self, given: Mapping[str, str], known: Mapping[str, str]) -> None:
        """`known`: names by their lower-case form, besides kafka.*. Raises OptionError for others."""
        self.given = {name.lower(): value for name, value in given.items()}
        for name, value in self.given.items():
            if not name.startswith("kafka.") and name not in known:
                shown = "" if _MAY_BE_SECRET.search(name) else f" ('{value}')"
                raise OptionError(f"option '{name}'{shown} is not known{_guess(name, known)}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.given

    def get(self, name: str, read: Callable[[str], _T], default: _T) -> _T:
        """The option's value parsed by `read`, whose ValueError states the problem."""
        value = self.given.get(name.lower())
        if value is None:
            return default
        try:
            return read(value.strip())
        except ValueError as error:
            raise self.error(name, str(error)) from None

    def error(self, name: str, why: str) -> OptionError:
        """An error about an option that is set."""
        value = "(not shown)" if name in SECRETS else f"'{_OF_AN_ADDRESS.sub('//', self.given[name.lower()])}'"
        return OptionError(f"option '{name}' is {value}: {why}")

    def missing(self, name: str, why: str) -> OptionError:
        """An error about an option that is missing."""
        return OptionError(f"option '{name}' is missing: {why}")


def _guess(name: str, known: Mapping[str, str]) -> str:
    """A suggestion for an unknown name, from the known names by their lower-case form."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{known[close[0]]}'?" if close else f"; known are kafka.* and {', '.join(known.values())}"
