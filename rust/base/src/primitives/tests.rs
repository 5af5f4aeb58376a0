use proptest::prelude::*;

use super::*;

fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::new();
    write(&mut writer);
    writer.into_bytes()
}

#[test]
fn varints_of_known_values() {
    for (value, bytes) in [(0, &[0x00][..]), (127, &[0x7f]), (128, &[0x80, 0x01]), (300, &[0xac, 0x02])] {
        assert_eq!(written(|writer| writer.unsigned_varint(value)), bytes);
    }
    assert_eq!(written(|writer| writer.varint(-1)), [0x01]);
    assert_eq!(written(|writer| writer.varint(1)), [0x02]);
    assert_eq!(written(|writer| writer.varlong(i64::MIN)), [[0xff; 9].as_slice(), &[0x01]].concat());
}

#[test]
fn varints_that_do_not_fit_or_do_not_end_are_refused() {
    let too_long = Err(WireError::VarintTooLong);
    assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x10]).unsigned_varint(), too_long);
    assert_eq!(Reader::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]).unsigned_varint(), too_long);
    assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).unsigned_varint(), Ok(u32::MAX));
    assert_eq!(
        Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).unsigned_varlong(),
        Err(WireError::VarintTooLong)
    );
    assert_eq!(Reader::new(&[0x80, 0x80]).varint(), Err(WireError::Truncated { needed: 1, left: 0 }));
    // Padded with zeroes, but within five bytes: Apache Kafka accepts it.
    assert_eq!(Reader::new(&[0x81, 0x80, 0x00]).unsigned_varint(), Ok(1));
}

#[test]
fn lengths_are_compared_with_the_remaining_bytes() {
    assert_eq!(Reader::new(&[0, 5, b'a']).string(), Err(WireError::Truncated { needed: 5, left: 1 }));
    assert_eq!(Reader::new(&[0xff, 0xfe]).nullable_string(), Ok(None));
    assert_eq!(Reader::new(&[0xff, 0xff]).string(), Err(WireError::UnexpectedNull));
    assert_eq!(Reader::new(&[0]).compact_bytes(), Err(WireError::UnexpectedNull));
    assert_eq!(Reader::new(&[2, 0xff]).compact_string(), Err(WireError::InvalidUtf8));
    assert_eq!(
        Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0]).compact_bytes(),
        Err(WireError::Truncated { needed: u32::MAX as usize - 1, left: 1 })
    );
    let long = written(|writer| writer.compact_bytes(&[b'a'; STRING_LEN_MAX + 1]));
    assert_eq!(Reader::new(&long).compact_string(), Err(WireError::InvalidLength(STRING_LEN_MAX as i64 + 1)));
}

#[test]
fn counts_are_compared_with_the_remaining_bytes() {
    let error = |count| WireError::CountTooLarge { count, left: 3 };
    let too_large = |count| Err(error(count));
    assert_eq!(Reader::new(&[0x7f, 0xff, 0xff, 0xff, 1, 2, 3]).array_len(1), too_large(0x7fff_ffff));
    assert_eq!(Reader::new(&[3, 1, 2, 3]).compact_array_len(2), too_large(2));
    assert_eq!(Reader::new(&[2, 1, 2, 3]).compact_array_len(2), Ok(1));
    assert_eq!(Reader::new(&[0]).compact_nullable_array_len(1), Ok(None));
    assert_eq!(Reader::new(&[0xff; 4]).nullable_array_len(1), Ok(None));
    assert_eq!(Reader::new(&[9, 1, 2, 3]).skip_tagged_fields(), Err(error(9)));
}

#[test]
fn tagged_fields_are_sized_and_unknown_ones_skipped() {
    let bytes = written(|writer| {
        writer.unsigned_varint(2);
        writer.tagged_field(0, |field| field.compact_bytes(&[7; 200]));
        writer.tagged_field(5, |field| field.i32(9));
    });
    let mut seen = Vec::new();
    let mut reader = Reader::new(&bytes);
    reader
        .tagged_fields(|tag, field| {
            if tag == 5 {
                seen.push(field.i32()?);
            }
            Ok(tag == 5)
        })
        .expect("well formed");
    assert_eq!(seen, [9]);
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn a_known_tagged_field_must_be_read_completely() {
    let bytes = written(|writer| {
        writer.unsigned_varint(1);
        writer.tagged_field(0, |field| field.i64(9));
    });
    let read = Reader::new(&bytes).tagged_fields(|_, field| field.i32().map(|_| true));
    assert_eq!(read, Err(WireError::TrailingBytes { left: 4 }));
}

proptest! {
    #[test]
    fn values_round_trip(
        int in any::<i32>(), long in any::<i64>(), text in proptest::option::of(".{0,40}"),
        raw in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
    ) {
        let bytes = written(|writer| {
            writer.varint(int);
            writer.varlong(long);
            writer.unsigned_varint(int as u32);
            writer.unsigned_varlong(long as u64);
            writer.nullable_string(text.as_deref());
            writer.compact_nullable_string(text.as_deref());
            writer.nullable_bytes(raw.as_deref());
            writer.compact_nullable_bytes(raw.as_deref());
        });
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(reader.varint(), Ok(int));
        prop_assert_eq!(reader.varlong(), Ok(long));
        prop_assert_eq!(reader.unsigned_varint(), Ok(int as u32));
        prop_assert_eq!(reader.unsigned_varlong(), Ok(long as u64));
        prop_assert_eq!(reader.nullable_string(), Ok(text.as_deref()));
        prop_assert_eq!(reader.compact_nullable_string(), Ok(text.as_deref()));
        prop_assert_eq!(reader.nullable_bytes(), Ok(raw.as_deref()));
        prop_assert_eq!(reader.compact_nullable_bytes(), Ok(raw.as_deref()));
        prop_assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = Reader::new(&bytes).unsigned_varint();
        let _ = Reader::new(&bytes).varlong();
        let _ = Reader::new(&bytes).nullable_string();
        let _ = Reader::new(&bytes).compact_nullable_bytes();
        let _ = Reader::new(&bytes).compact_nullable_array_len(3);
        let _ = Reader::new(&bytes).tagged_fields(|_, field| field.compact_string().map(|_| true));
    }
}
