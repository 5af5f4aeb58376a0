//! Invariant: no bytes make the decoders of Avro and Protobuf panic, loop, or hold more than what their programs make of so
//! many bytes; whatever is bad leaves the columns well formed, and good neighbours as they are.

use std::path::Path;
use std::sync::LazyLock;

use klamm_formats::{Decoder, Shape};
use serde_json::Value;

/// What a byte can become at most, in all columns together: an item of a repeated message with many fields takes two.
const COLUMN_BYTES_A_BYTE: usize = 512;

static DECODERS: LazyLock<Vec<Decoder>> = LazyLock::new(|| ["avro", "everything", "old"].map(decoder).into());

/// The decoder of a program that Python made, for values behind a Confluent header.
fn decoder(name: &str) -> Decoder {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/golden/formats/programs/{name}.json"));
    let told: Value = serde_json::from_slice(&std::fs::read(path).expect("readable")).expect("JSON");
    let shape = Shape::parse(&told["shape"].to_string()).expect("a shape");
    let mut decoder = Decoder::new(shape, true).expect("a shape that is made");
    decoder.learn(Some(1), &told["program"].to_string()).expect("a program");
    decoder
}

/// Decodes the bytes behind the first, which chooses the decoder.
pub fn values(data: &[u8]) {
    let Some((which, value)) = data.split_first() else { return };
    let decoder = &DECODERS[usize::from(*which) % DECODERS.len()];
    let rows = [Some(value), None, Some(value)];
    let _ = decoder.unknown(rows.into_iter());
    let found = crate::heap::bounded(data, COLUMN_BYTES_A_BYTE * data.len(), || decoder.decode(rows.into_iter()));
    found.column.check_invariants();
    assert_eq!(found.column.len, 3);
    assert!(found.bad.is_empty() || found.bad == [0, 2], "{:?}", found.bad);
    assert_eq!(found.bad.is_empty(), found.why.is_none());
    assert_eq!(found.column.validity.null_count(), 1 + found.bad.len());
}
