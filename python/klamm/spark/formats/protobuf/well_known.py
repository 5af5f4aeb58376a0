"""Files that can be imported without being present: Google's well-known types, and Confluent's."""

from __future__ import annotations

from typing import Final

_HEAD: Final = 'syntax = "proto3"; package google.protobuf; '
_WRAPPED: Final = {
    "DoubleValue": "double",
    "FloatValue": "float",
    "Int64Value": "int64",
    "UInt64Value": "uint64",
    "Int32Value": "int32",
    "UInt32Value": "uint32",
    "BoolValue": "bool",
    "StringValue": "string",
    "BytesValue": "bytes",
}

WELL_KNOWN: Final = {
    "google/protobuf/timestamp.proto": _HEAD + "message Timestamp { int64 seconds = 1; int32 nanos = 2; }",
    "google/protobuf/duration.proto": _HEAD + "message Duration { int64 seconds = 1; int32 nanos = 2; }",
    "google/protobuf/any.proto": _HEAD + "message Any { string type_url = 1; bytes value = 2; }",
    "google/protobuf/empty.proto": _HEAD + "message Empty {}",
    "google/protobuf/field_mask.proto": _HEAD + "message FieldMask { repeated string paths = 1; }",
    "google/protobuf/wrappers.proto": _HEAD
    + " ".join(f"message {name} {{ {kind} value = 1; }}" for name, kind in _WRAPPED.items()),
    "google/protobuf/struct.proto": _HEAD
    + """
    message Struct { map<string, Value> fields = 1; }
    message Value {
      oneof kind {
        NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
        Struct struct_value = 5; ListValue list_value = 6;
      }
    }
    enum NullValue { NULL_VALUE = 0; }
    message ListValue { repeated Value values = 1; }
    """,
    # Both are imported only for options.
    "google/protobuf/descriptor.proto": _HEAD,
    "confluent/meta.proto": 'syntax = "proto3"; package confluent;',
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
    message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
}
