"""The native part of `klamm.protocol`: encoding and decoding of messages, and the table of APIs."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, final

@final
class MessageSchema:
    """A structure of a Kafka message at one version, and the class of its objects.

    A field is (attribute or None, kind, is_array, is_nullable, tag or None, default, from_wire, to_wire). `kind` is the
    name of a primitive or the schema of a structure; the optional functions `from_wire` and `to_wire` convert a value
    from and to its wire form (int, str, bytes; an id is 16 bytes). `absent` lists attributes without a field and their
    values.
    """

    def __new__(
        cls,
        class_: type,
        is_flexible: bool,
        fields: Sequence[
            tuple[
                str | None,
                str | MessageSchema,
                bool,
                bool,
                int | None,
                object,
                Callable[[Any], object] | None,
                Callable[[Any], object] | None,
            ]
        ],
        absent: Sequence[tuple[str, object]],
    ) -> MessageSchema: ...
    def read(self, body: bytes) -> Any:
        """Decode an object; its attributes are set without `__init__`. Raises ValueError for malformed bytes."""

    def error_codes(self, body: bytes) -> list[tuple[int, int]]:
        """Each error code in an encoded object with its number, NONE included; stops at malformed bytes."""

    def write(self, value: object) -> bytes:
        """Encode an object. Raises TypeError, which names the attribute, for an invalid value."""

@final
class Api:
    """A row of the table of Kafka 4.3's APIs (rust/wire/src/api/table.rs)."""

    @property
    def key(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def versions(self) -> tuple[int, int]:
        """The lowest and highest stable version."""
    @property
    def on_broker(self) -> Literal["engine", "python", "not yet"] | None:
        """The part that serves it on broker listeners; None if Kafka does not serve it there."""
    @property
    def on_controller(self) -> Literal["engine", "python", "not yet"] | None:
        """The same on controller listeners."""
    @property
    def is_forwarded(self) -> bool:
        """Whether a broker forwards it, wholly or in part, to the active controller (KIP-590)."""
    @property
    def is_before_authentication(self) -> bool: ...
    @property
    def checks(self) -> list[tuple[str, str]]:
        """Operation and resource type of each check of an authorizer, in order."""
    @property
    def quota(self) -> Literal["produce", "fetch", "controller mutation", "request", "exempt"]:
        """The client quota that counts it."""

def apis() -> list[Api]:
    """The table, by key."""
