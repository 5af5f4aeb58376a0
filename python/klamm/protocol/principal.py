"""The principal of a request: the identity that authentication gave its connection, for authorization and quotas."""

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """A `KafkaPrincipal`: its type and its name, and whether a delegation token authenticated it."""

    type: str = "User"
    name: str = "ANONYMOUS"
    token_authenticated: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal()
"""The principal of every connection whose listener does not authenticate."""
