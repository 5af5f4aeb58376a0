//! A digest that tells whether two attempts had the same rows.

use klamm_records::RecordHeader;

use super::open::Rows;

/// The sum of a hash of each row (CRC-32C, mixed): independent of the order and of how rows are divided, so that
/// digests of parts can be added. Not safe against deliberate collisions.
pub fn digest(topic: &str, rows: &dyn Rows) -> u64 {
    let topic = crc32c::crc32c(topic.as_bytes());
    let mut headers = Vec::new();
    let mut sum = 0u64;
    for at in 0..rows.count() {
        headers.clear();
        rows.headers(at, &mut headers);
        sum = sum.wrapping_add(hash_row(topic, &rows.row(at), &headers));
    }
    sum
}

fn hash_row(topic: u32, row: &super::open::Row<'_>, headers: &[RecordHeader<'_>]) -> u64 {
    let mut crc = add_number(topic, row.partition.map(i64::from));
    crc = add_number(crc, row.timestamp_ms);
    crc = add_bytes(add_bytes(crc, row.key), row.value);
    for header in headers {
        crc = add_bytes(add_bytes(crc, Some(header.key)), header.value);
    }
    mix(u64::from(crc))
}

fn add_number(crc: u32, number: Option<i64>) -> u32 {
    let mut framed = [0; 9];
    if let Some(number) = number {
        framed[0] = 1;
        framed[1..].copy_from_slice(&number.to_le_bytes());
    }
    crc32c::crc32c_append(crc, &framed)
}

/// Includes the length, so that moving bytes between fields changes the digest.
fn add_bytes(crc: u32, bytes: Option<&[u8]>) -> u32 {
    let crc = add_number(crc, bytes.map(|bytes| bytes.len() as i64));
    bytes.map_or(crc, |bytes| crc32c::crc32c_append(crc, bytes))
}

/// The last step of splitmix64: in a sum of plain CRCs, changes of two rows could cancel out.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::super::open::Row;
    use super::*;

    type One = (Option<&'static [u8]>, Option<&'static [u8]>, Option<i32>);

    struct Given(Vec<One>);

    impl Rows for Given {
        fn count(&self) -> usize {
            self.0.len()
        }

        fn row(&self, at: usize) -> Row<'_> {
            let (key, value, partition) = self.0[at];
            Row { partition, timestamp_ms: None, key, value }
        }

        fn headers<'a>(&'a self, _at: usize, _out: &mut Vec<RecordHeader<'a>>) {}
    }

    fn of(rows: &[One]) -> u64 {
        digest("t", &Given(rows.to_vec()))
    }

    #[test]
    fn order_and_portions_do_not_matter_but_everything_else_does() {
        let (a, b, c): (One, One, One) =
            ((Some(b"a"), Some(b"1"), None), (None, Some(b"2"), Some(3)), (Some(b""), None, None));
        assert_eq!(of(&[a, b, c]), of(&[c, a, b]));
        assert_eq!(of(&[a, b, c]), of(&[a, b]).wrapping_add(of(&[c])));
        let different: [&[One]; 8] = [
            &[],
            &[a],
            &[a, a],
            &[(Some(b"a1"), Some(b""), None)],
            &[(Some(b""), Some(b"a1"), None)],
            &[(None, Some(b"a1"), None)],
            &[(Some(b"a"), Some(b"1"), Some(0))],
            &[(Some(b"a"), None, None)],
        ];
        let mut found: Vec<_> = different.iter().map(|rows| of(rows)).collect();
        found.push(digest("u", &Given(vec![a])));
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), different.len() + 1);
    }
}
