//! Valid topic names, and internal topics.

/// The longest name in bytes.
const LEN_MAX: usize = 249;

/// Whether a topic may have this name.
pub fn is_valid(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=LEN_MAX).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(allowed)
}

/// Whether the topic stores a coordinator's state.
pub fn is_internal(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "A.b_c-9", "...", "__consumer_offsets", &"x".repeat(249)] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "ä", &"x".repeat(250)] {
            assert!(!is_valid(bad), "{bad}");
        }
        assert!(is_internal("__consumer_offsets") && !is_internal("__cluster_metadata"));
    }
}
