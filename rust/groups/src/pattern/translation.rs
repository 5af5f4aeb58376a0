//! A parser of RE2/J 1.8's syntax (`com.google.re2j.Parser`) that writes what it reads in the syntax of the `regex`
//! crate. Characters are written as hexadecimal escapes unless they are letters or digits, and groups capture nothing.
use super::PatternError;
use super::classes::{POSIX, UNICODE, UNICODE_NOT_SUPPORTED, perl};

const CHAR_RANGE: &str = "invalid character class range";
const ESCAPE: &str = "invalid escape sequence";
const NAMED_CAPTURE: &str = "invalid named capture";
const PERL_SYNTAX: &str = "invalid or unsupported Perl syntax";
const REPEAT_OPERATOR: &str = "invalid nested repetition operator";
const REPEAT_SIZE: &str = "invalid repeat count";
const MISSING_BRACKET: &str = "missing closing ]";
const MISSING_PAREN: &str = "missing closing )";
/// RE2/J calls this "regexp/syntax: internal error".
const UNEXPECTED_PAREN: &str = "unexpected )";
const MISSING_ARGUMENT: &str = "missing argument to repetition operator";
const TRAILING_BACKSLASH: &str = "trailing backslash at end of expression";
const DUPLICATE_CAPTURE: &str = "duplicate capture group name";

const REPEAT_MAX: u32 = 1000;

/// Writes an RE2/J pattern in the syntax of the `regex` crate.
pub fn translate(pattern: &str) -> Result<String, PatternError> {
    let mut parser = Parser {
        pattern: pattern.chars().collect(),
        at: 0,
        out: String::new(),
        names: Vec::new(),
        has_no_class_end: false,
    };
    parser.translate()?;
    Ok(parser.out)
}

/// What a repetition operator would repeat.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Nothing,
    Atom,
    Repetition,
    /// Flags or an empty quotation after something: RE2/J repeats what is before them.
    Gap,
}

struct Parser {
    pattern: Vec<char>,
    at: usize,
    out: String,
    names: Vec<String>,
    /// Whether no `:]` follows, so that it is not looked for at each `[:` again.
    has_no_class_end: bool,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.pattern.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    fn is_at(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(offset, expected)| self.pattern.get(self.at + offset) == Some(&expected))
    }

    /// The index of `text` from here on.
    fn find(&self, text: &str) -> Option<usize> {
        let wanted: Vec<char> = text.chars().collect();
        self.pattern[self.at..].windows(wanted.len()).position(|window| window == wanted).map(|found| self.at + found)
    }

    fn text(&self, start: usize, end: usize) -> String {
        self.pattern[start..end.min(self.pattern.len())].iter().collect()
    }

    fn error(&self, what: &'static str, start: usize) -> PatternError {
        PatternError::Invalid { what, part: self.text(start, self.at) }
    }

    fn translate(&mut self) -> Result<(), PatternError> {
        let mut before = Before::Nothing;
        let mut depth = 0_usize;
        while let Some(next) = self.peek() {
            before = match next {
                '(' => {
                    let opens = self.group()?;
                    depth += usize::from(opens);
                    if opens || before == Before::Nothing { Before::Nothing } else { Before::Gap }
                }
                ')' => {
                    depth = depth.checked_sub(1).ok_or_else(|| self.whole(UNEXPECTED_PAREN))?;
                    self.copy();
                    Before::Atom
                }
                '|' => {
                    self.copy();
                    Before::Nothing
                }
                '*' | '+' | '?' => {
                    let start = self.at;
                    self.at += 1;
                    self.repeat(before, start, &next.to_string())?
                }
                '{' => self.counted(before)?,
                '[' => {
                    self.class()?;
                    Before::Atom
                }
                '\\' if self.is_at(r"\Q") => match self.quotation()? {
                    0 if before == Before::Nothing => Before::Nothing,
                    0 => Before::Gap,
                    _ => Before::Atom,
                },
                '\\' => {
                    self.escape()?;
                    Before::Atom
                }
                '^' | '$' | '.' => {
                    self.copy();
                    Before::Atom
                }
                other => {
                    self.at += 1;
                    self.literal(other);
                    Before::Atom
                }
            };
        }
        if depth > 0 { Err(self.whole(MISSING_PAREN)) } else { Ok(()) }
    }

    fn whole(&self, what: &'static str) -> PatternError {
        PatternError::Invalid { what, part: self.text(0, self.pattern.len()) }
    }

    fn copy(&mut self) {
        let next = self.next().expect("the caller has seen it");
        self.out.push(next);
    }

    fn literal(&mut self, literal: char) {
        if literal.is_ascii_alphanumeric() || literal == '_' {
            self.out.push(literal);
        } else {
            self.out.push_str(&format!(r"\x{{{:X}}}", literal as u32));
        }
    }

    /// Writes a repetition operator and the `?` after it.
    fn repeat(&mut self, before: Before, start: usize, operator: &str) -> Result<Before, PatternError> {
        let is_lazy = self.peek() == Some('?');
        self.at += usize::from(is_lazy);
        match before {
            Before::Repetition => return Err(self.error(REPEAT_OPERATOR, start)),
            Before::Nothing => return Err(self.error(MISSING_ARGUMENT, start)),
            Before::Gap => return Err(not_supported("a repetition after flags or an empty quotation")),
            Before::Atom => {}
        }
        self.out.push_str(operator);
        self.out.push_str(if is_lazy { "?" } else { "" });
        Ok(Before::Repetition)
    }

    /// `{n}`, `{n,}` or `{n,m}`; anything else is a literal brace.
    fn counted(&mut self, before: Before) -> Result<Before, PatternError> {
        let start = self.at;
        let Some((min, max)) = self.counts() else {
            self.at = start + 1;
            self.literal('{');
            return Ok(Before::Atom);
        };
        if min > REPEAT_MAX || max.is_some_and(|max| max > REPEAT_MAX || min > max) {
            return Err(self.error(REPEAT_SIZE, start));
        }
        let max = max.map(|max| max.to_string()).unwrap_or_default();
        self.repeat(before, start, &format!("{{{min},{max}}}"))
    }

    fn counts(&mut self) -> Option<(u32, Option<u32>)> {
        self.at += 1;
        let min = self.count()?;
        let max = match self.next()? {
            '}' => return Some((min, Some(min))),
            ',' if self.peek() == Some('}') => None,
            ',' => Some(self.count()?),
            _ => return None,
        };
        (self.next() == Some('}')).then_some((min, max))
    }

    /// A number without leading zeros; what is too large for 32 bits is larger than [`REPEAT_MAX`].
    fn count(&mut self) -> Option<u32> {
        let start = self.at;
        while self.peek().is_some_and(|digit| digit.is_ascii_digit()) {
            self.at += 1;
        }
        let digits = self.text(start, self.at);
        let is_number = !digits.is_empty() && (digits.len() == 1 || !digits.starts_with('0'));
        is_number.then(|| digits.parse().unwrap_or(u32::MAX))
    }

    /// An opening parenthesis with what belongs to it; returns whether a group begins.
    fn group(&mut self) -> Result<bool, PatternError> {
        let start = self.at;
        if !self.is_at("(?") {
            self.at += 1;
            self.out.push_str("(?:");
            return Ok(true);
        }
        if self.is_at("(?P<") || self.is_at("(?<") {
            self.named_group()?;
            self.out.push_str("(?:");
            return Ok(true);
        }
        self.at += 2;
        let (mut on, mut off, mut is_off, mut saw_flag) = (String::new(), String::new(), false, false);
        while let Some(next) = self.next() {
            match next {
                'i' | 'm' | 's' | 'U' => {
                    on.retain(|flag| flag != next);
                    off.retain(|flag| flag != next);
                    if is_off { &mut off } else { &mut on }.push(next);
                    saw_flag = true;
                }
                '-' if !is_off => (is_off, saw_flag) = (true, false),
                ':' | ')' if !is_off || saw_flag => {
                    let off = if off.is_empty() { off } else { format!("-{off}") };
                    if next == ':' {
                        self.out.push_str(&format!("(?{on}{off}:"));
                    } else if !on.is_empty() || !off.is_empty() {
                        self.out.push_str(&format!("(?{on}{off})"));
                    }
                    return Ok(next == ':');
                }
                _ => break,
            }
        }
        Err(self.error(PERL_SYNTAX, start))
    }

    fn named_group(&mut self) -> Result<(), PatternError> {
        let start = self.at;
        let begin = start + if self.is_at("(?P<") { 4 } else { 3 };
        let Some(end) = self.find(">") else {
            self.at = self.pattern.len();
            return Err(self.error(NAMED_CAPTURE, start));
        };
        let name = self.text(begin, end);
        self.at = end + 1;
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if name.is_empty() || !name.chars().all(is_word) {
            return Err(self.error(NAMED_CAPTURE, start));
        }
        if self.names.contains(&name) {
            return Err(PatternError::Invalid { what: DUPLICATE_CAPTURE, part: name });
        }
        self.names.push(name);
        Ok(())
    }

    /// `\Q...\E`; returns the number of literals.
    fn quotation(&mut self) -> Result<usize, PatternError> {
        self.at += 2;
        let end = self.find(r"\E").unwrap_or(self.pattern.len());
        let quoted: Vec<char> = self.pattern[self.at..end].to_vec();
        quoted.iter().for_each(|literal| self.literal(*literal));
        self.at = (end + 2).min(self.pattern.len());
        Ok(quoted.len())
    }

    /// An escape outside of a class.
    fn escape(&mut self) -> Result<(), PatternError> {
        let start = self.at;
        match self.pattern.get(start + 1) {
            Some('A') => self.out.push_str(r"\A"),
            Some('z') => self.out.push_str(r"\z"),
            Some('b') => self.out.push_str(r"(?-u:\b)"),
            Some('B') => self.out.push_str(r"(?-u:\B)"),
            Some('C') => {
                self.at += 2;
                return Err(self.error(ESCAPE, start));
            }
            Some('p' | 'P') => return self.unicode_class(),
            Some(letter) => match perl(*letter) {
                Some((ranges, is_negated)) => self.out.push_str(&bracketed(ranges, is_negated)),
                None => {
                    let literal = self.escaped_char()?;
                    self.literal(literal);
                    return Ok(());
                }
            },
            None => return self.escaped_char().map(|_| ()),
        }
        self.at += 2;
        Ok(())
    }

    /// `\pL`, `\p{Greek}`, `\P{Greek}`, `\p{^Greek}`.
    fn unicode_class(&mut self) -> Result<(), PatternError> {
        let start = self.at;
        let mut is_negated = self.pattern[start + 1] == 'P';
        self.at += 2;
        let name = match self.next() {
            Some('{') => {
                let Some(end) = self.find("}") else {
                    self.at = self.pattern.len();
                    return Err(self.error(CHAR_RANGE, start));
                };
                let name = self.text(self.at, end);
                self.at = end + 1;
                name
            }
            Some(letter) => letter.to_string(),
            None => return Err(self.error(CHAR_RANGE, start)),
        };
        let plain = name.strip_prefix('^').unwrap_or(&name);
        is_negated ^= plain.len() < name.len();
        match plain {
            // RE2/J's does not contain what Unicode has not assigned.
            "C" => self.out.push_str(&bracketed(r"\p{Cc}\p{Cf}\p{Co}", is_negated)),
            "Any" => self.out.push_str(&bracketed(r"\x{0}-\x{10FFFF}", is_negated)),
            plain if UNICODE.contains(&plain) => self.out.push_str(&bracketed(&format!(r"\p{{{plain}}}"), is_negated)),
            plain if UNICODE_NOT_SUPPORTED.contains(&plain) => {
                return Err(not_supported(&format!("the class `{}`", self.text(start, self.at))));
            }
            _ => return Err(self.error(CHAR_RANGE, start)),
        }
        Ok(())
    }

    /// `[...]`.
    fn class(&mut self) -> Result<(), PatternError> {
        let start = self.at;
        self.copy();
        if self.peek() == Some('^') {
            self.copy();
        }
        let mut is_first = true;
        while self.peek() != Some(']') || is_first {
            is_first = false;
            if self.is_at("[:") && self.named_class()? {
                continue;
            }
            if self.is_at(r"\p") || self.is_at(r"\P") {
                self.unicode_class()?;
                continue;
            }
            if self.peek() == Some('\\')
                && let Some((ranges, is_negated)) = self.pattern.get(self.at + 1).and_then(|letter| perl(*letter))
            {
                self.out.push_str(&bracketed(ranges, is_negated));
                self.at += 2;
                continue;
            }
            self.class_range(start)?;
        }
        self.copy();
        Ok(())
    }

    /// A character, or two with a dash between them.
    fn class_range(&mut self, class: usize) -> Result<(), PatternError> {
        let start = self.at;
        let low = self.class_char(class)?;
        let mut high = low;
        if self.peek() == Some('-') && self.pattern.get(self.at + 1) != Some(&']') {
            self.at += 1;
            high = self.class_char(class)?;
            if high < low {
                return Err(self.error(CHAR_RANGE, start));
            }
        }
        self.out.push_str(&format!(r"\x{{{:X}}}-\x{{{:X}}}", low as u32, high as u32));
        Ok(())
    }

    fn class_char(&mut self, class: usize) -> Result<char, PatternError> {
        match self.peek() {
            Some('\\') => self.escaped_char(),
            Some(literal) => {
                self.at += 1;
                Ok(literal)
            }
            None => Err(self.error(MISSING_BRACKET, class)),
        }
    }

    /// `[:alpha:]`; false if nothing closes it, so that it is characters.
    fn named_class(&mut self) -> Result<bool, PatternError> {
        let start = self.at;
        if self.has_no_class_end {
            return Ok(false);
        }
        let Some(end) = self.find(":]") else {
            self.has_no_class_end = true;
            return Ok(false);
        };
        // In `[:]` the colon that opens is the one that closes: a class without a name.
        let name = self.text((start + 2).min(end), end);
        self.at = end + 2;
        if !POSIX.contains(&name.strip_prefix('^').unwrap_or(&name)) {
            return Err(self.error(CHAR_RANGE, start));
        }
        self.out.push_str(&self.text(start, self.at));
        Ok(true)
    }

    /// A backslash and what follows, as one character.
    fn escaped_char(&mut self) -> Result<char, PatternError> {
        let start = self.at;
        self.at += 1;
        let Some(letter) = self.next() else {
            return Err(PatternError::Invalid { what: TRAILING_BACKSLASH, part: String::new() });
        };
        let code = match letter {
            '1'..='7' if !self.peek().is_some_and(|digit| digit.is_digit(8)) => None,
            '0'..='7' => Some(self.octal(letter)),
            'x' => self.hexadecimal(),
            'a' => Some(7),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            other => (!other.is_ascii_alphanumeric()).then_some(other as u32),
        };
        let code = code.ok_or_else(|| self.error(ESCAPE, start))?;
        char::from_u32(code).ok_or_else(|| not_supported(&format!("the surrogate `{}`", self.text(start, self.at))))
    }

    fn octal(&mut self, first: char) -> u32 {
        let mut code = first.to_digit(8).expect("the caller has looked");
        for _ in 1..3 {
            let Some(digit) = self.peek().and_then(|digit| digit.to_digit(8)) else { break };
            code = code * 8 + digit;
            self.at += 1;
        }
        code
    }

    /// `7F` or `{10FFFF}`.
    fn hexadecimal(&mut self) -> Option<u32> {
        let first = self.next()?;
        if first != '{' {
            return Some(first.to_digit(16)? * 16 + self.next()?.to_digit(16)?);
        }
        let mut code: Option<u32> = None;
        loop {
            let digit = self.next()?;
            if digit == '}' {
                return code;
            }
            code = Some(code.unwrap_or_default() * 16 + digit.to_digit(16)?).filter(|code| *code <= 0x10FFFF);
            code?;
        }
    }
}

fn bracketed(content: &str, is_negated: bool) -> String {
    format!("[{}{content}]", if is_negated { "^" } else { "" })
}

fn not_supported(what: &str) -> PatternError {
    PatternError::NotSupported(what.to_owned())
}
