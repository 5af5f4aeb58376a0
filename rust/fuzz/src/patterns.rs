//! Invariant: no text that a member sends as a pattern makes its translation, compilation or matching panic, hang, or allocate
//! more than a compiled pattern may; a quoted name matches itself and nothing longer.

use klamm_groups::pattern::TopicPattern;

/// What parsing and compiling a pattern may hold besides its text: the limits of `pattern` bound the compiled form.
const COMPILING_BYTES_MAX: usize = 32 << 20;
const NAME_BYTES_MAX: usize = 249;

/// The bytes up to the first zero are the pattern, the rest is a name.
pub fn patterns(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (source, name) = (String::from_utf8_lossy(&data[..at]), String::from_utf8_lossy(&data[at..]));
    crate::heap::bounded(data, COMPILING_BYTES_MAX, || {
        if let Ok(pattern) = TopicPattern::new(&source) {
            assert_eq!(pattern.source(), source);
            pattern.matches(&name);
        }
    });
    quoted(&name);
    quoted(&source);
}

fn quoted(name: &str) {
    if name.len() > NAME_BYTES_MAX || name.contains("\\E") {
        return;
    }
    let pattern = TopicPattern::new(&format!("\\Q{name}\\E")).expect("a quoted name is a pattern");
    assert!(pattern.matches(name), "{name:?} does not match itself");
    assert!(!pattern.matches(&format!("{name}x")), "{name:?} matches a longer name");
}
