//! Invariant: no bytes make the decoders of Avro and Protobuf panic, loop, or allocate more than their programs may
//! produce from that many bytes; invalid values leave the columns well formed, and valid neighbours unchanged.

use std::path::Path;
use std::sync::LazyLock;

use klamm_formats::{Decoder, Shape};
use serde_json::Value;

/// Limit on the bytes in all columns for each input byte: an item of a repeated message with many fields takes two
/// bytes.
const COLUMN_BYTES_A_BYTE: usize = 512;

static DECODERS: LazyLock<Vec<Decoder>> = LazyLock::new(|| ["avro", "everything", "old"].map(decoder).into());

/// The decoder of a program that Python generated, for values with a Confluent header.
fn decoder(name: &str) -> Decoder {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/golden/formats/programs/{name}.json"));
    let parsed: Value = serde_json::from_slice(&std::fs::read(path).expect("readable")).expect("JSON");
    let shape = Shape::parse(&parsed["shape"].to_string()).expect("a shape");
    let mut decoder = Decoder::new(shape, true).expect("a shape that is made");
    decoder.learn(Some(1), &parsed["program"].to_string()).expect("a program");
    decoder
}

/// Decodes the bytes after the first one, which selects the decoder.
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
