//! Which values of a column are valid (not null).

/// One bit per value, lowest first; allocated with the first null.
#[derive(Clone, Debug, Default)]
pub struct Validity {
    bits: Vec<u8>,
    null_count: usize,
}

impl Validity {
    /// Adds the next value, at index `place`.
    #[inline]
    pub fn push(&mut self, place: usize, is_valid: bool) {
        if !is_valid || self.null_count > 0 {
            self.mark(place, is_valid);
        }
    }

    fn mark(&mut self, place: usize, is_valid: bool) {
        if self.null_count == 0 {
            self.bits = vec![0xff; place / 8];
            self.bits.push(!(0xff << (place % 8)));
        }
        self.null_count += usize::from(!is_valid);
        set_bit(&mut self.bits, place, is_valid);
    }

    /// Drops the values from `place` on, of `len` values.
    pub fn truncate(&mut self, place: usize, len: usize) {
        if self.null_count == 0 {
            return;
        }
        let nulls = (place..len).filter(|at| self.bits[at / 8] >> (at % 8) & 1 == 0).count();
        self.null_count -= nulls;
        truncate_bits(&mut self.bits, place);
        if self.null_count == 0 {
            self.bits = Vec::new();
        }
    }

    pub fn null_count(&self) -> usize {
        self.null_count
    }

    /// The bits, if any value is null.
    pub fn into_bits(self) -> Option<Vec<u8>> {
        (self.null_count > 0).then_some(self.bits)
    }
}

/// Writes the next bit, at index `place`. The bits after it in its byte are zero.
#[inline]
pub fn set_bit(bits: &mut Vec<u8>, place: usize, bit: bool) {
    if place / 8 == bits.len() {
        bits.push(0);
    }
    bits[place / 8] |= u8::from(bit) << (place % 8);
}

/// Drops the bits from `place` on.
pub fn truncate_bits(bits: &mut Vec<u8>, place: usize) {
    bits.truncate(place.div_ceil(8));
    if let (Some(last), 1..) = (bits.last_mut(), place % 8) {
        *last &= !(0xff << (place % 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_leaves_no_bits() {
        for kept in 0..20 {
            let pattern = |at: usize| at % 3 != 1;
            let (mut cut, mut straight) = (Validity::default(), Validity::default());
            (0..20).for_each(|at| cut.push(at, pattern(at)));
            cut.truncate(kept, 20);
            (0..kept).for_each(|at| straight.push(at, pattern(at)));
            for more in kept..kept + 9 {
                cut.push(more, more % 2 == 0);
                straight.push(more, more % 2 == 0);
            }
            assert_eq!(cut.null_count(), straight.null_count());
            assert_eq!(cut.into_bits(), straight.into_bits(), "{kept}");
        }
    }
}
