//! Short lists of broker ids, stored inline: nearly every partition has at most three replicas.
use smallvec::SmallVec;

use crate::field::Array;

/// The number of ids that are stored inline.
pub const FEW: usize = 3;

/// Ids that are copied from a record into a partition.
pub type Ids = SmallVec<[i32; 8]>;

/// Up to three ids, padded with zeroes, and their number; `None` if there are more.
#[inline]
pub fn few(ids: Array<'_, i32>) -> Option<(u8, [i32; FEW])> {
    let mut few = [0; FEW];
    let places = few.get_mut(..ids.len())?;
    match ids {
        Array::Own(ids) => places.copy_from_slice(ids),
        Array::Wire { bytes, .. } => {
            let (ids, _) = bytes.as_chunks();
            places.iter_mut().zip(ids).for_each(|(place, id)| *place = i32::from_be_bytes(*id));
        }
    }
    Some((ids.len() as u8, few))
}

#[cfg(test)]
mod tests {
    use klamm_base::primitives::{Reader, Writer};

    use super::*;
    use crate::field::Field;

    #[test]
    fn short_lists_equal_their_arrays() {
        for count in 0..6 {
            let ids: Vec<i32> = (-1..count - 1).collect();
            let mut expected = [0; FEW];
            let expected = expected.get_mut(..ids.len()).map(|places| places.copy_from_slice(&ids)).map(|()| expected);
            let expected = expected.map(|few| (ids.len() as u8, few));
            let own = Array::from(&ids);
            assert_eq!(few(own), expected);
            let mut writer = Writer::new();
            own.write(&mut writer, 0).expect("an array");
            let wire = Array::read(&mut Reader::new(writer.as_slice()), 0).expect("an array");
            assert_eq!(few(wire), expected);
        }
    }
}
