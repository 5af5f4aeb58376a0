//! Cases that no library writes: invalid bytes and invalid programs.

use proptest::prelude::*;

use crate::{Bad, Column, Data, Decoder, ProgramError, Shape};

const RECORD: &str = r#"["+s", [["id", ["l", []]], ["name", ["u", []]], ["tags", ["+l", [["element", ["i", []]]]]]]]"#;
const READ: &str = r#"{"avro": {"root": ["record", [[0, ["long"]], ["counted"], [1, ["union", [["null"], ["counted"]]]],
    [2, ["array", ["int"]]]], []], "named": []}}"#;

fn decoder(shape: &str, program: &str) -> Decoder {
    let mut decoder = Decoder::new(Shape::parse(shape).expect("a shape"), false).expect("made");
    decoder.learn(None, program).expect("a program");
    decoder
}

fn why(shape: &str, read: &str, value: &[u8]) -> Option<Bad> {
    let program = format!(r#"{{"avro": {{"root": {read}, "named": [["record", [["array", ["named", 0]]]]]}}}}"#);
    let found = decoder(shape, &program).decode([Some(value)].into_iter());
    found.column.check_invariants();
    found.why
}

fn longs(column: &Column) -> Vec<i64> {
    match &column.data {
        Data::Int64(numbers) => numbers.clone(),
        _ => panic!("no longs"),
    }
}

#[test]
fn a_bad_value_does_not_affect_its_neighbours() {
    let good = [2, 4, b'x', b'x', 2, 2, b'n', 4, 2, 4, 0];
    // The name is not UTF-8, which is found after the id was read; the last of the tags is missing.
    let bad = [2, 0, 2, 2, 0xff, 0];
    let cut = [2, 0, 0, 4, 2];
    let rows = [Some(&good[..]), Some(&bad), None, Some(&cut), Some(&good)];
    let found = decoder(RECORD, READ).decode(rows.into_iter());
    found.column.check_invariants();
    assert_eq!((found.bad, found.why), (vec![1, 3], Some(Bad::NotUtf8)));
    assert_eq!(found.column.validity.null_count(), 3);
    let Data::Struct(children) = &found.column.data else { panic!("a record") };
    assert_eq!(longs(&children[0]), [1, 0, 0, 0, 1]);
    let Data::List { offsets, items } = &children[2].data else { panic!("a list") };
    assert_eq!((offsets.as_slice(), items.len), (&[0, 2, 2, 2, 2, 4][..], 4));
}

#[test]
fn hostile_bytes_are_refused() {
    let list = r#"["+l", [["element", ["i", []]]]]"#;
    let nulls = r#"["+l", [["element", ["n", []]]]]"#;
    let ints = r#"["array", ["int"]]"#;
    let most = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let least = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0];
    assert!(matches!(why(list, ints, &most), Some(Bad::TooMany { .. })));
    assert!(matches!(why(list, ints, &least), Some(Bad::TooMany { .. })), "the least number has no positive");
    assert!(matches!(why(nulls, r#"["array", ["null"]]"#, &most), Some(Bad::TooMany { .. })));
    assert!(matches!(why(list, ints, &[2, 0x80, 0x80, 0x80, 0x80, 0x10, 0]), Some(Bad::Overlong)));
    assert_eq!(why(list, ints, &[1, 1, 0, 0]), Some(Bad::Negative(-1)));
    assert_eq!(why(list, ints, &[0, 0]), Some(Bad::Trailing(1)));
    assert!(matches!(why(r#"["z", []]"#, r#"["counted"]"#, &most), Some(Bad::Truncated { .. })));
    assert_eq!(why(r#"["z", []]"#, r#"["counted"]"#, &[3]), Some(Bad::Negative(-2)));
    assert_eq!(why(r#"["b", []]"#, r#"["boolean"]"#, &[2]), Some(Bad::NoBoolean(2)));
    let union = r#"["union", [["null"], ["refuse", "no"]]]"#;
    assert_eq!(why(r#"["i", []]"#, union, &[4]), Some(Bad::NoBranch { branch: 2, count: 2 }));
    assert_eq!(why(r#"["i", []]"#, union, &[1]), Some(Bad::NoBranch { branch: -1, count: 2 }));
    assert_eq!(why(r#"["i", []]"#, union, &[2]), Some(Bad::Refused("no".into())));
    let colors = r#"["enum", ["RED", null]]"#;
    assert_eq!(why(r#"["u", []]"#, colors, &[2]), Some(Bad::UnknownSymbol(1)));
    assert_eq!(why(r#"["u", []]"#, colors, &[4]), Some(Bad::NoSymbol { symbol: 2, count: 2 }));
    assert_eq!(why(r#"["tsu:", []]"#, r#"["scaled", 1000, 1]"#, &most), Some(Bad::NoTime));
    assert_eq!(why(r#"["d:2,0", []]"#, r#"["decimal", null, 2]"#, &[2, 100]), Some(Bad::TooPrecise(2)));
}

#[test]
fn skipped_values_are_bounded_too() {
    // A list of lists of lists, each with one item, without an end.
    let tree = r#"["record", [["named", 0], [0, ["int"]]], []]"#;
    let shape = r#"["+s", [["id", ["i", []]]]]"#;
    assert_eq!(why(shape, tree, &[2; 10_000]), Some(Bad::TooDeep(crate::DEPTH_MAX)));
    assert_eq!(why(shape, tree, &[2, 2, 0, 0, 0, 8]), None);
    // A block with a size is skipped as a whole.
    assert_eq!(why(shape, tree, &[3, 4, 9, 9, 0, 8]), None);
    assert!(matches!(why(shape, tree, &[3, 0x7e, 9]), Some(Bad::Truncated { .. })));
}

#[test]
fn an_inconsistent_program_is_rejected() {
    let wrong = |shape: &str, read: &str| {
        let shape = Shape::parse(shape).expect("a shape");
        let program = format!(r#"{{"avro": {{"root": {read}, "named": []}}}}"#);
        let refused = Decoder::new(shape, false).expect("made").learn(None, &program);
        assert!(matches!(refused, Err(ProgramError(_))), "{read}");
    };
    wrong(r#"["i", []]"#, r#"["long"]"#);
    wrong(r#"["i", []]"#, r#"["nonsense"]"#);
    wrong(r#"["u", []]"#, r#"["decimal", null, 5]"#);
    wrong(r#"["tsu:", []]"#, r#"["scaled", 1, 0]"#);
    wrong(r#"["+s", [["a", ["i", []]]]]"#, r#"["record", [], []]"#);
    wrong(r#"["+s", [["a", ["i", []]]]]"#, r#"["record", [[0, ["int"]], [0, ["int"]]], []]"#);
    wrong(r#"["+s", [["a", ["i", []]]]]"#, r#"["record", [[1, ["int"]]], []]"#);
    wrong(r#"["+s", [["a", ["i", []]]]]"#, r#"["record", [[0, ["int"]], ["named", 0]], []]"#);
    wrong(r#"["+m", [["entries", ["i", []]]]]"#, r#"["map", ["int"]]"#);
    assert!(Shape::parse(r#"["+l", []]"#).is_err());
    assert!(Decoder::new(Shape::parse(r#"["x", []]"#).expect("a shape"), false).is_err());
}

#[test]
fn each_id_has_its_program_and_unknown_ids_are_reported() {
    let mut decoder = Decoder::new(Shape::parse(r#"["l", []]"#).expect("a shape"), true).expect("made");
    let long = r#"{"avro": {"root": ["long"], "named": []}}"#;
    decoder.learn(Some(1), long).expect("a program");
    decoder.learn(Some(2), r#"{"refused": "another schema"}"#).expect("a program");
    let rows = [&[0, 0, 0, 0, 1, 6][..], &[0, 0, 0, 0, 2, 6], &[0, 0, 0, 0, 3, 6], &[1, 0, 0, 0, 3, 6], &[0]].map(Some);
    assert_eq!(decoder.unknown(rows.into_iter()), [3]);
    let found = decoder.decode(rows.into_iter());
    assert_eq!((found.bad, found.why), (vec![1, 2, 3, 4], Some(Bad::Refused("another schema".into()))));
    assert_eq!(longs(&found.column), [3, 0, 0, 0, 0]);
    decoder.learn(None, long).expect("a program");
    assert!(decoder.unknown(rows.into_iter()).is_empty());
    assert_eq!(decoder.decode(rows.into_iter()).bad, [1, 3, 4]);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(rows in proptest::collection::vec(proptest::option::of(any::<Vec<u8>>()), 0..20)) {
        let decoder = decoder(RECORD, READ);
        let found = decoder.decode(rows.iter().map(Option::as_deref));
        found.column.check_invariants();
        for (place, row) in rows.iter().enumerate() {
            let alone = decoder.decode([row.as_deref()].into_iter());
            prop_assert_eq!(alone.bad.is_empty(), !found.bad.contains(&place));
        }
    }
}
