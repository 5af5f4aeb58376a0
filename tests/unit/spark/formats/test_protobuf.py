"""Protobuf files: their declarations, and the types in Spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from klamm._engine.spark import ValueDecoder
from klamm.spark.formats.reading import reading_of
from klamm.spark.formats.schema_text import SchemaText
from klamm.spark.formats.shapes import SchemaError

HEAD = 'syntax = "proto3"; '


def ddl(text: str, message: str | None = None, **imports: str) -> str:
    references = tuple((name.replace("__", "/") + ".proto", HEAD + one) for name, one in imports.items())
    return reading_of(SchemaText("PROTOBUF", HEAD + text, references), message).shape.ddl()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("message M { uint32 a = 1; fixed64 b = 0x2; }", "struct<`a`: bigint, `b`: decimal(20,0)>"),
        ("message M { repeated E e = 1; enum E { A = 0; } }", "struct<`e`: array<string>>"),
        ("message M { map<int32, N> m = 1; message N { bytes b = 1; } }", "struct<`m`: map<int, struct<`b`: binary>>>"),
        ("message M { Empty e = 1; bool b = 2; } message Empty {}", "struct<`b`: boolean>"),
        (
            'import "google/protobuf/any.proto"; message M { google.protobuf.Any any = 1; }',
            "struct<`any`: struct<`type_url`: string, `value`: binary>>",
        ),
        (
            'import public "google/protobuf/duration.proto"; message M { .google.protobuf.Duration took = 1; }',
            "struct<`took`: interval day to second>",
        ),
        # Keywords as names, options in every form, reserved fields, comments.
        (
            """/* c */ option (x.y).z = { a: "}" b: [1, 2] }; extend google.protobuf.FieldOptions { string s = 50000; }
            message M { // c
              option deprecated = true; reserved 5, 7 to 9, 100 to max; reserved "old"; extensions 200 to 300;
              string message = 1 [(s) = "; ]", json_name = "x"]; optional .optional.T repeated = 2; bool option = 3;
              oneof one { option (x) = 1; string map = 4; int32 to = 6; } ;
            } ; service S { rpc Get (M) returns (stream M) { option (http) = { get: "/" }; } }
            """
            "message optional { message T { bool t = 1; } }",
            "struct<`message`: string, `repeated`: struct<`t`: boolean>, `option`: boolean, `map`: string, `to`: int>",
        ),
        # The innermost matching name.
        (
            "message M { message N { bool inner = 1; } N n = 1; .N outer = 2; } message N { bool top = 1; }",
            "struct<`n`: struct<`inner`: boolean>, `outer`: struct<`top`: boolean>>",
        ),
    ],
)
def test_messages_in_spark(text: str, expected: str) -> None:
    assert ddl(text) == expected


def test_editions_and_imports() -> None:
    text = 'edition = "2023"; package a.b; import "x/y.proto"; message M { y.N n = 1 [features.field_presence = X]; }'
    inner = 'package a.y; import "x/z.proto"; message N { Z z = 1; }'
    innermost = 'package a; import "x/y.proto"; message Z { bool b = 1; }'
    references = (("x/y.proto", HEAD + inner), ("x/z.proto", HEAD + innermost))
    found = reading_of(SchemaText("PROTOBUF", text, references), None)
    assert found.shape.ddl() == "struct<`n`: struct<`z`: struct<`b`: boolean>>>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message M { M again = 1; }", "message M is within itself, and Spark has no type for that"),
        ('import "google/protobuf/struct.proto"; message M { google.protobuf.Struct s = 1; }', "is within itself"),
        ("message M {}", "message M has no fields"),
        ("enum E { A = 0; }", "declares no message"),
        ('import "a.proto"; message M { bool b = 1; }', "imports 'a.proto', which is not there"),
        ("message M { N n = 1; }", "has the type 'N', which nothing declares"),
        ("message M { map<float, bool> m = 1; }", "a map with keys of type float"),
        ("message M {\n bool b = 1\n}", "line 3: ';' is wanted, not '}'"),
        ("message M { bool b = x; }", "a number is wanted, not 'x'"),
        ("message M { bool b = 1;", "the file ends in the middle"),
        ("message M { bool # = 1; }", "'#' is nothing that a .proto has"),
        ("nonsense", "a message, an enum or an import is wanted, not 'nonsense'"),
        ("message M { E e = 1; } enum E { }", "enum E has no symbols"),
    ],
)
def test_unsupported_schemas_are_named(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=r"(?s).*") as refused:
        ddl(text)
    assert message in str(refused.value)


def test_a_message_is_chosen_by_its_full_name() -> None:
    text = "package p; message A { bool a = 1; } message B { message C { bool c = 1; } bool b = 1; }"
    assert ddl(text) == "struct<`a`: boolean>"
    assert ddl(text, "p.B.C") == "struct<`c`: boolean>"
    with pytest.raises(SchemaError, match=r"no message 'C'; it has p\.A, p\.B, p\.B\.C"):
        ddl(text, "C")


def test_the_header_must_name_the_message() -> None:
    """Java's clients do not count the entries of maps among the declared messages, others do."""
    text = HEAD + "message A { map<int32, bool> m = 1; message B { int32 b = 1; } B b = 2; }"
    reading = reading_of(SchemaText("PROTOBUF", text), "A.B")
    native = ValueDecoder(json.dumps(reading.shape.to_json()), framed=True)
    native.learn(None, reading.program(None))
    head = bytes(5)
    values = [head + bytes([4, 0, 0, 8, 1]), head + bytes([4, 0, 2, 8, 2]), head + bytes([0, 8, 3])]
    found = native.decode(pa.array(values, pa.binary()))
    assert pa.array(found).to_pylist() == [{"b": 1}, {"b": 2}, None]
    assert found.why == "it is message [0] of its schema, expected [0, 1]"


def test_a_writer_s_file_locates_the_message() -> None:
    reading = reading_of(SchemaText("PROTOBUF", HEAD + "message A { int32 a = 1; }"), None)
    written = SchemaText("PROTOBUF", HEAD + "message Z { bool z = 1; } message A { string other = 2; int32 a = 1; }")
    assert json.loads(reading.program(written))["protobuf"]["indexes"] == [[1]]
    with pytest.raises(SchemaError, match="no message 'A'"):
        reading.program(SchemaText("PROTOBUF", HEAD + "message B { bool z = 1; }"))
    with pytest.raises(SchemaError, match="schema 5 is of the kind AVRO"):
        reading.program(SchemaText("AVRO", '"int"', origin="schema 5"))
