//! Cases that no library writes: parts out of order, repeated, of other types, and invalid bytes.

use proptest::prelude::*;

use crate::{Bad, Column, Data, Decoded, Decoder, ProgramError, Shape};

const SHAPE: &str = r#"["+s", [["id", ["i", []]], ["inner", ["+s", [["a", ["l", []]], ["b", ["u", []]]]]],
    ["items", ["+l", [["element", ["i", []]]]]], ["word", ["u", []]], ["number", ["d:20,0", []]]]]"#;
const MESSAGE: &str = r#"{"protobuf": {"message": [[[1, 0, false, null, ["int32"]],
    [2, 1, false, null, ["message", [[1, 0, false, null, ["int64"]], [2, 1, false, null, ["string"]]], [null, "6d"]]],
    [3, 2, true, null, ["int32"]], [4, 3, false, 0, ["string"]], [5, 4, false, 0, ["uint64"]]],
    [null, null, null, null, null]], "indexes": INDEXES}}"#;

fn decoder(indexes: &str, is_framed: bool) -> Decoder {
    let mut decoder = Decoder::new(Shape::parse(SHAPE).expect("a shape"), is_framed).expect("made");
    decoder.learn(None, &MESSAGE.replace("INDEXES", indexes)).expect("a program");
    decoder
}

fn decode(value: &[u8]) -> Decoded {
    let found = decoder("[]", false).decode([Some(value)].into_iter());
    found.column.check_invariants();
    found
}

fn child(column: &Column, at: usize) -> &Column {
    match &column.data {
        Data::Struct(children) => &children[at],
        _ => panic!("no struct"),
    }
}

fn int32s(column: &Column) -> &[i32] {
    match &column.data {
        Data::Int32(numbers) => numbers,
        Data::List { items, .. } => int32s(items),
        _ => panic!("no int32"),
    }
}

fn text(column: &Column) -> &str {
    match &column.data {
        Data::Bytes { bytes, .. } => std::str::from_utf8(bytes).expect("text"),
        _ => panic!("no text"),
    }
}

#[test]
fn the_last_of_a_field_counts_and_parts_of_a_message_are_one() {
    let found = decode(&[8, 1, 0x12, 2, 8, 7, 8, 2, 0x12, 3, 0x12, 1, b'x', 0x12, 2, 8, 9]);
    assert_eq!(found.bad, [0; 0]);
    assert_eq!(int32s(child(&found.column, 0)), [2]);
    let inner = child(&found.column, 1);
    assert!(matches!(&child(inner, 0).data, Data::Int64(numbers) if numbers == &[9]));
    assert_eq!(text(child(inner, 1)), "x");
}

#[test]
fn an_absent_field_is_null_or_its_default() {
    let found = decode(&[0x12, 0]);
    assert_eq!(child(&found.column, 0).validity.null_count(), 1);
    let inner = child(&found.column, 1);
    assert_eq!((child(inner, 0).validity.null_count(), text(child(inner, 1))), (1, "m"));
    let none = decode(&[]);
    assert_eq!(child(&none.column, 1).validity.null_count(), 1);
    assert_eq!(child(&none.column, 2).validity.null_count(), 0, "an empty list");
}

#[test]
fn repeated_fields_come_packed_and_not() {
    let found = decode(&[0x18, 1, 0x1a, 3, 2, 0x80, 1, 0x18, 3, 0x1a, 0]);
    assert_eq!(int32s(child(&found.column, 2)), [1, 2, 128, 3]);
}

#[test]
fn one_field_of_a_oneof_is_set() {
    let found = decode(&[0x22, 1, b'w', 0x28, 5]);
    assert_eq!(child(&found.column, 3).validity.null_count(), 1);
    assert!(matches!(&child(&found.column, 4).data, Data::Int128(numbers) if numbers == &[5]));
    let other = decode(&[0x28, 5, 0x22, 1, b'w']);
    assert_eq!((text(child(&other.column, 3)), child(&other.column, 4).validity.null_count()), ("w", 1));
}

#[test]
fn unknown_fields_are_skipped() {
    // Field 9 with each wire type, including a group; and fields 1 and 3 with the wrong types.
    let unknown = [
        0x48, 1, 0x49, 0, 0, 0, 0, 0, 0, 0, 0, 0x4a, 1, 0, 0x4d, 0, 0, 0, 0, 0x4b, 8, 1, 0x4c, 0x0a, 0, 0x1d, 0, 0, 0,
        0,
    ];
    let found = decode(&unknown);
    assert_eq!(found.bad, [0; 0]);
    assert_eq!(child(&found.column, 0).validity.null_count(), 1);
}

#[test]
fn hostile_bytes_are_refused() {
    let why = |value: &[u8]| decode(value).why;
    assert!(matches!(why(&[8]), Some(Bad::Truncated { .. })));
    assert!(matches!(why(&[8, 0x80]), Some(Bad::Truncated { .. })));
    assert_eq!(why(&[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), Some(Bad::Overlong));
    assert!(matches!(why(&[0x22, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]), Some(Bad::Truncated { .. })));
    assert_eq!(why(&[0x22, 1, 0xff]), Some(Bad::NotUtf8));
    assert!(matches!(why(&[0x1a, 1, 0x80]), Some(Bad::Truncated { .. })));
    assert_eq!(why(&[0x4b; 100]), Some(Bad::TooDeep(crate::DEPTH_MAX)));
    assert!(matches!(why(&[0x12, 2, 8, 0x80]), Some(Bad::Truncated { .. })), "within the bytes of the message");
}

#[test]
fn a_header_selects_the_message() {
    let other = decoder("[[1], [0, 2]]", true);
    let rows = [&[0, 0, 0, 0, 9, 2, 2, 8, 4][..], &[0, 0, 0, 0, 9, 4, 0, 4, 8, 5], &[0, 0, 0, 0, 9, 0, 8, 6]].map(Some);
    let found = other.decode(rows.into_iter());
    assert_eq!((found.bad, int32s(child(&found.column, 0))), (vec![2], &[4, 5, 0][..]));
    assert_eq!(found.why, Some(Bad::OtherMessage { found: vec![0], wanted: [1].into() }));
    assert!(decoder("[]", true).decode(rows.into_iter()).bad.is_empty());
}

#[test]
fn an_inconsistent_program_is_rejected() {
    for (from, to) in [
        (r#"["int64"]"#, r#"["uint64"]"#),
        (r#"["int64"]"#, r#"["nonsense"]"#),
        ("[3, 2, true", "[3, 2, false"),
        ("[1, 0, false, null, [\"int32\"]]", "[1, 1, false, null, [\"int32\"]]"),
        ("[null, \"6d\"]", "[null]"),
        ("[null, \"6d\"]", "[\"6d\", null]"),
    ] {
        let mut decoder = Decoder::new(Shape::parse(SHAPE).expect("a shape"), false).expect("made");
        let wrong = MESSAGE.replace("INDEXES", "[]").replacen(from, to, 1);
        assert!(matches!(decoder.learn(None, &wrong), Err(ProgramError(_))), "{to}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(rows in proptest::collection::vec(proptest::option::of(any::<Vec<u8>>()), 0..20)) {
        let decoder = decoder("[]", false);
        let found = decoder.decode(rows.iter().map(Option::as_deref));
        found.column.check_invariants();
        for (place, row) in rows.iter().enumerate() {
            let alone = decoder.decode([row.as_deref()].into_iter());
            prop_assert_eq!(alone.bad.is_empty(), !found.bad.contains(&place));
        }
    }
}
