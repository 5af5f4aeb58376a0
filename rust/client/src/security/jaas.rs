//! `sasl.jaas.config`: one login module with its options, parsed like Apache Kafka's `JaasConfig`.

use std::collections::BTreeMap;

/// `class flag name="value" ...;`
#[derive(Clone, PartialEq, Eq)]
pub struct LoginModule {
    /// The class with its package.
    pub class: String,
    pub options: BTreeMap<String, String>,
}

/// The error. It never repeats the text, which contains a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JaasError {
    #[error("it contains no login module")]
    Empty,
    #[error("the login module's class must be followed by required")]
    NoFlag,
    #[error("its option number {0} is not name=\"value\"")]
    Option(usize),
    #[error("it does not end in a semicolon")]
    Unended,
    #[error("a text in quotes does not end")]
    OpenQuotes,
    #[error("it has more than one login module")]
    Several,
}

const FLAGS: [&str; 4] = ["required", "requisite", "sufficient", "optional"];

/// Parses the only login module of a text.
pub fn parse(text: &str) -> Result<LoginModule, JaasError> {
    let mut tokens = tokens(text)?.into_iter();
    let Some(Token::Word(class)) = tokens.next() else { return Err(JaasError::Empty) };
    match tokens.next() {
        Some(Token::Word(flag)) if FLAGS.contains(&flag.to_ascii_lowercase().as_str()) => {}
        _ => return Err(JaasError::NoFlag),
    }
    let mut options = BTreeMap::new();
    let mut number = 0;
    loop {
        number += 1;
        match tokens.next() {
            Some(Token::Mark(';')) => break,
            Some(Token::Word(name)) => match (tokens.next(), tokens.next()) {
                (Some(Token::Mark('=')), Some(Token::Word(value))) => drop(options.insert(name, value)),
                _ => return Err(JaasError::Option(number)),
            },
            Some(Token::Mark(_)) => return Err(JaasError::Option(number)),
            None => return Err(JaasError::Unended),
        }
    }
    if tokens.next().is_some() { Err(JaasError::Several) } else { Ok(LoginModule { class, options }) }
}

enum Token {
    /// With or without quotes.
    Word(String),
    Mark(char),
}

fn tokens(text: &str) -> Result<Vec<Token>, JaasError> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(first) = rest.next() {
        match first {
            _ if first.is_whitespace() => {}
            '/' if rest.peek() == Some(&'/') => rest.by_ref().take_while(|next| *next != '\n').for_each(drop),
            '/' if rest.peek() == Some(&'*') => skip_comment(&mut rest),
            '"' | '\'' => tokens.push(Token::Word(quoted(first, &mut rest)?)),
            _ if is_of_word(first) => {
                let mut word = String::from(first);
                while let Some(next) = rest.next_if(|next| is_of_word(*next)) {
                    word.push(next);
                }
                tokens.push(Token::Word(word));
            }
            mark => tokens.push(Token::Mark(mark)),
        }
    }
    Ok(tokens)
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn is_of_word(next: char) -> bool {
    next.is_alphanumeric() || matches!(next, '.' | '-' | '_' | '$')
}

fn skip_comment(rest: &mut Rest<'_>) {
    rest.next();
    let mut before = ' ';
    for next in rest.by_ref() {
        if before == '*' && next == '/' {
            return;
        }
        before = next;
    }
}

/// The text up to the closing quote, with Java's escapes.
fn quoted(quote: char, rest: &mut Rest<'_>) -> Result<String, JaasError> {
    let mut text = String::new();
    while let Some(next) = rest.next() {
        match next {
            _ if next == quote => return Ok(text),
            '\n' | '\r' => return Err(JaasError::OpenQuotes),
            '\\' => text.push(escaped(rest).ok_or(JaasError::OpenQuotes)?),
            _ => text.push(next),
        }
    }
    Err(JaasError::OpenQuotes)
}

fn escaped(rest: &mut Rest<'_>) -> Option<char> {
    Some(match rest.next()? {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        first @ '0'..='7' => octal(first, rest),
        other => other,
    })
}

/// Up to three octal digits, the first of three at most 3.
fn octal(first: char, rest: &mut Rest<'_>) -> char {
    let digit_of = |next: char| next.to_digit(8).unwrap_or(0);
    let mut value = digit_of(first);
    for _ in 0..if first <= '3' { 2 } else { 1 } {
        let Some(next) = rest.next_if(|next| next.is_digit(8)) else { break };
        value = value * 8 + digit_of(next);
    }
    char::from_u32(value).unwrap_or('\0')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options(text: &str) -> Vec<(String, String)> {
        parse(text).map(|module| module.options.into_iter().collect()).expect(text)
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn javas_forms_are_read() {
        let text =
            "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"me\" password=\"p;= '\";";
        assert_eq!(
            parse(text).map(|module| module.class).as_deref(),
            Ok("org.apache.kafka.common.security.plain.PlainLoginModule")
        );
        assert_eq!(options(text), pairs(&[("password", "p;= '"), ("username", "me")]));
        assert_eq!(options("A REQUIRED;"), []);
        assert_eq!(options(" A.B\n required\n a='x\"y'\n b=word-1 ; "), pairs(&[("a", "x\"y"), ("b", "word-1")]));
        assert_eq!(options(r#"A required a="\"\\\101\t";"#), pairs(&[("a", "\"\\A\t")]));
        assert_eq!(options("A /* no */ required a=b; // end"), pairs(&[("a", "b")]));
    }

    #[test]
    fn errors_do_not_contain_the_text() {
        for (text, expected) in [
            ("", JaasError::Empty),
            ("A", JaasError::NoFlag),
            ("A always password=\"x\";", JaasError::NoFlag),
            ("A required password;", JaasError::Option(1)),
            ("A required a=b password=;", JaasError::Option(2)),
            ("A required password=\"x\"", JaasError::Unended),
            ("A required password=\"x;", JaasError::OpenQuotes),
            ("A required; B required;", JaasError::Several),
        ] {
            assert_eq!(parse(text).err(), Some(expected), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_quoted_password_of_any_characters_is_read(password in "[^\n\r]{0,40}") {
            let quoted = password.replace('\\', "\\\\").replace('"', "\\\"");
            let found = options(&format!("A required password=\"{quoted}\";"));
            prop_assert_eq!(found, pairs(&[("password", &password)]));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}") {
            let _ = parse(&text);
        }
    }
}
