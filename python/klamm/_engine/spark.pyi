"""What only Spark's connector needs: values decoded to columns, and digests of the rows it writes."""

from typing import Self, final

def digest_rows(
    topic: str,
    partition: int | object | None,
    keys: object | None,
    values: object | None,
    headers: object | None = None,
    timestamps: object | None = None,
) -> int:
    """A 64-bit digest that shows whether two attempts had the same rows; columns are as for `produce`.

    Order does not matter, and digests of portions add up (modulo 2**64). It detects accidents, not manipulation.
    """

@final
class DecodedValues:
    """Values decoded to an Arrow array: `pyarrow.array(values)` takes it over without a copy."""

    @property
    def bad(self) -> list[int]:
        """The indexes of the values that could not be decoded, ascending; they are null."""
    @property
    def why(self) -> str | None:
        """The error of the first of them."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Schema and array as capsules. May be called again."""

    def __len__(self) -> int: ...

@final
class ValueDecoder:
    """Decodes Avro and Protobuf to Arrow, by programs that `klamm.spark.formats` makes of schemas. Thread-safe.

    Columns of byte strings are any that have `__arrow_c_array__`; calls with them release the GIL.
    """

    def __new__(cls, shape: str, *, framed: bool) -> Self:
        """`shape`: the column as JSON, `[format, [[name, shape], ...]]`. `framed`: values have Confluent's header."""

    def learn(self, schema_id: int | None, program: str) -> None:
        """The program, as JSON, for values of a schema; None: for all that have none. ValueError: it does not fit."""

    def unknown(self, values: object) -> list[int]:
        """The schema ids in these values for which there is no program."""

    def decode(self, values: object) -> DecodedValues:
        """The same number of values, null where one is null or bad."""
