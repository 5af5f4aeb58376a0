//! Hashes of what topics are found by.
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use crate::Uuid;

/// The hash of an id. Ids are random, drawn by the controller: a client cannot choose ids that collide, so one
/// multiplication of the halves is enough.
#[inline]
pub fn hash_id(id: Uuid) -> u32 {
    let value = u128::from_be_bytes(id.0);
    let low = (value as u64) ^ 0x9e37_79b9_7f4a_7c15;
    let high = ((value >> 64) as u64) ^ 0xbf58_476d_1ce4_e5b9;
    let product = u128::from(low) * u128::from(high);
    let mixed = (product as u64) ^ ((product >> 64) as u64);
    (mixed ^ (mixed >> 32)) as u32
}

/// The hash of a name, keyed, since clients choose names.
#[inline]
pub fn hash_name(name: &str) -> u32 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(name) as u32
}
