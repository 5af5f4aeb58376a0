use proptest::prelude::*;

use super::classes::UNICODE;
use super::{PatternError, TopicPattern};

fn pattern(source: &str) -> TopicPattern {
    TopicPattern::new(source).unwrap_or_else(|error| panic!("{source}: {error}"))
}

fn invalid(source: &str) -> &'static str {
    match TopicPattern::new(source) {
        Err(PatternError::Invalid { what, .. }) => what,
        other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn whole_names() {
    assert!(pattern("a+").matches("aaa"));
    assert!(!pattern("a+").matches("aab"));
    assert!(pattern("a|ab").matches("ab"));
    assert!(pattern("").matches(""));
    assert!(!pattern("").matches("a"));
    assert!(!pattern("a").matches("a\n"));
}

/// Syntax that RE2/J and the `regex` crate share, but interpret differently.
#[test]
fn patterns_match_as_in_re2j() {
    for (source, matched, other) in [
        (r"\d", "7", "٣"),
        (r"\w", "_", "é"),
        (r"\s", "\t", "\u{b}"),
        (r"[\s]", "\t", "\u{b}"),
        (r"\S", "\u{b}", " "),
        (r"[\D]", "a", "0"),
        (r"\<a\>", "<a>", "a"),
        (r"[[a]&&b]", "[&&b]", "a"),
        (r"[a&&b]", "&", "c"),
        (r"[+--b]", ",", "a"),
        (r"[a~~b]", "~", "c"),
        (r"[]a]", "]", "["),
        (r"[^]a]", "b", "]"),
        (r"[a-]", "-", "b"),
        (r"[[:alpha:]-]", "-", "1"),
        (r"[[:^alpha:]]", "1", "a"),
        (r"[[:word]", ":", "a"),
        (r"\Qa.b*\E", "a.b*", "axb"),
        (r"\Qa.b", "a.b", "axb"),
        (r"\Qab\E+", "abb", "abab"),
        (r"a{,2}", "a{,2}", "aa"),
        (r"a{01}", "a{01}", "a"),
        (r"a{2}", "aa", "a"),
        (r"a{1,2}?", "aa", "aaa"),
        (r"a{", "a{", "a"),
        (r"\101\x42\x{43}\0", "ABC\0", "ABC0"),
        (r"(?i)kafka", "KaFKa", "kafkas"),
        (r"a(?i)b|c", "C", "A"),
        (r"(?i:a)b", "Ab", "AB"),
        (r"(?i-i)a", "a", "A"),
        (r"(?)a", "a", ""),
        (r"(?P<name>a)(?<_2>b)", "ab", "name"),
        (r"(?s).", "\n", ""),
        (r".", "é", "\n"),
        (r"\pL", "é", "1"),
        (r"\p{Greek}+", "λόγος", "logos"),
        (r"\P{^Greek}", "λ", "l"),
        (r"[\p{Lu}0]", "0", "a"),
        (r"\pC", "\u{7}", "\u{378}"),
        (r"a\b-b", "a-b", "ab"),
        (r"(?m)a$\n^b", "a\nb", "a b"),
        (r"^*a", "a", ""),
        (r"()*a", "a", ""),
        (r"\_\-\.\/", "_-./", "a"),
    ] {
        assert!(pattern(source).matches(matched), "{source} {matched:?}");
        assert!(!pattern(source).matches(other), "{source} {other:?}");
    }
}

#[test]
fn errors_have_the_wording_of_re2j() {
    for (what, sources) in [
        ("unexpected )", &[")", "a)", "(a))"][..]),
        ("missing closing )", &["(", "((a)", "(?i:a"]),
        ("missing closing ]", &["[", "[a", "[]", "[^]", "[[:alpha"]),
        ("missing argument to repetition operator", &["*", "a|*", "(+)", "(?i)*", "{2}"]),
        ("invalid nested repetition operator", &["a**", "a*+", "a{2}{3}", "a???", "a+{2}"]),
        ("invalid repeat count", &["a{1001}", "a{2,1}", "a{9999999999}", "a{0,1001}"]),
        ("invalid escape sequence", &[r"\C", r"\1", r"\8", r"\q", r"\u0041", r"\Z", r"\x", r"\xg0", r"\x{}", r"\E"]),
        ("invalid escape sequence", &[r"\x{110000}", r"[a-\d]", r"[\b]", r"\k<a>"]),
        (
            "invalid character class range",
            &[
                "[b-a]",
                "[[:foo:]]",
                "[[:]",
                "[[:]a]",
                "[[::]]",
                r"\pX",
                r"\p{Letter}",
                r"\p{Alphabetic}",
                r"\p",
                r"\p{L",
            ],
        ),
        ("invalid named capture", &["(?P<>a)", "(?P<a", "(?<a-b>c)"]),
        ("duplicate capture group name", &["(?P<a>b)(?<a>c)"]),
        (
            "invalid or unsupported Perl syntax",
            &["(?=a)", "(?!a)", "(?<!a", "(?>a)", "(?x)a", "(?u)a", "(?-)a", "(?i-:a)", "(?P=a)"],
        ),
        ("trailing backslash at end of expression", &[r"\", r"a\", r"[\"]),
    ] {
        for source in sources {
            // A look-behind reads like a group with a bad name.
            let what = if source.starts_with("(?<!") { "invalid named capture" } else { what };
            assert_eq!(invalid(source), what, "{source}");
        }
    }
}

#[test]
fn unsupported_syntax_is_named() {
    for (source, named) in
        [(r"\p{Cs}", r"\p{Cs}"), (r"\x{D800}", r"\x{D800}"), ("a(?i)*", "flags"), (r"a\Q\E*", "quotation")]
    {
        let Err(PatternError::NotSupported(message)) = TopicPattern::new(source) else { panic!("{source}") };
        assert!(message.contains(named), "{source}: {message}");
    }
}

#[test]
fn unicode_classes_exist() {
    for name in UNICODE {
        pattern(&format!(r"\p{{{name}}}"));
    }
}

#[test]
fn large_patterns_are_refused() {
    for source in ["(?:a{1000}){1000}", r"((\pL{100}){100}){100}", r"(\pL{1000}){1000}"] {
        assert_eq!(TopicPattern::new(source).map(|_| ()), Err(PatternError::TooLarge), "{source}");
    }
    let deep = "(".repeat(10_000) + &")".repeat(10_000);
    assert!(matches!(TopicPattern::new(&deep), Err(PatternError::NotSupported(_))));
    pattern(&vec!["topic-name-of-some-length"; 300].join("|"));
}

/// Exponential for a matcher that backtracks.
#[test]
fn matching_does_not_backtrack() {
    let name = "a".repeat(5_000);
    assert!(!pattern("(a*)*b").matches(&name));
    assert!(!pattern("(a|aa)+b").matches(&name));
    assert!(pattern(&("a?".repeat(30) + &"a".repeat(30))).matches(&"a".repeat(30)));
}

proptest! {
    /// The crate compiles what the parser accepts; any other rejection names unsupported syntax.
    #[test]
    fn any_text_is_a_pattern_or_an_error(source in r"[\\\[\](){}?*+|^$.:,&~<>QEpPxdswbBAzCiUms\-0-9aä\n]{0,24}", name in ".{0,12}") {
        match TopicPattern::new(&source) {
            Ok(pattern) => { pattern.matches(&name); }
            Err(PatternError::NotSupported(what)) => {
                let known = ["a repetition after flags", "the surrogate", "the class", "exceeded"];
                prop_assert!(known.iter().any(|known| what.contains(known)), "{source:?}: {what}");
            }
            Err(_) => {}
        }
    }
}
