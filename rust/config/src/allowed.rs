//! Which values of its type a key takes, beyond what the type itself refuses.

use std::fmt;

use super::value::ConfigValue;

/// The values that a key accepts. `Display` is the text that DescribeConfigs and Kafka's documentation show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowed {
    Any,
    AtLeast(i64),
    /// At least the first, or the second, a lower value with a special meaning.
    AtLeastOr(i64, i64),
    Between(i64, i64),
    Fraction(f64, f64),
    GzipLevel,
    OneOf(&'static [&'static str]),
    OneOfIgnoringCase(&'static [&'static str]),
    NonNull,
    NonEmpty,
    /// Any entries, or only those named; whether the list may be empty.
    ListOf {
        entries: &'static [&'static str],
        may_be_empty: bool,
    },
    /// `id@host:port,...`
    Voters,
    /// `host:port,...`
    Servers,
    /// `partition:broker,...` or `*`
    ThrottledReplicas,
    OffsetReset,
}

impl Allowed {
    /// `Err` with the reason why the value is not allowed, in Kafka's words.
    pub(super) fn check(&self, value: &ConfigValue) -> Result<(), String> {
        match (self, value) {
            (Self::Any | Self::NonNull, _) => Ok(()),
            (Self::GzipLevel, ConfigValue::Int(-1 | 1..=9)) => Ok(()),
            (Self::GzipLevel, _) => Err("Value must be between 1 and 9 or equal to -1".into()),
            (Self::AtLeast(min), value) => check_range(value, *min as f64, &min, None, &""),
            (Self::AtLeastOr(min, special), value) => {
                let is_allowed = value.as_number() >= *min as f64 || value.as_number() == *special as f64;
                if is_allowed { Ok(()) } else { Err(format!("Value must be at least {min} or equal to {special}")) }
            }
            (Self::Between(min, max), value) => check_range(value, *min as f64, &min, Some(*max as f64), &max),
            (Self::Fraction(min, max), value) => check_range(value, *min, &min, Some(*max), &max),
            (Self::ListOf { entries, may_be_empty }, ConfigValue::List(values)) => {
                check_list(values, entries, *may_be_empty)
            }
            (Self::Voters, ConfigValue::List(values)) => check_each(values, is_voter, "{id}@{host}:{port}"),
            (Self::Servers, ConfigValue::List(values)) => check_each(values, is_address, "{host}:{port}"),
            (Self::ThrottledReplicas, ConfigValue::List(values)) => check_throttled(values),
            (_, ConfigValue::Text(text)) => self.check_text(text),
            (allowed, value) => unreachable!("{allowed:?} does not fit the type of {value:?}"),
        }
    }

    fn check_text(&self, text: &str) -> Result<(), String> {
        match self {
            Self::OneOf(values) if !values.contains(&text) => {
                Err(format!("String must be one of: {}", values.join(", ")))
            }
            Self::OneOfIgnoringCase(values) if !values.iter().any(|value| value.eq_ignore_ascii_case(text)) => {
                Err(format!("String must be one of (case insensitive): {}", values.join(", ")))
            }
            Self::NonEmpty if text.is_empty() => Err("String must be non-empty".into()),
            Self::OffsetReset if !is_offset_reset(text) => {
                Err("Value must be 'earliest', 'latest' or 'by_duration:PnDTnHnMn.nS'".into())
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => Ok(()),
            Self::AtLeast(min) => write!(out, "[{min},...]"),
            Self::AtLeastOr(min, special) => write!(out, "[{min},...] or {special}"),
            Self::Between(min, max) => write!(out, "[{min},...,{max}]"),
            Self::Fraction(min, max) => write!(out, "[{min},...,{max}]"),
            Self::GzipLevel => out.write_str("[1,...,9] or -1"),
            Self::OneOf(values) => write!(out, "[{}]", values.join(", ")),
            Self::OneOfIgnoringCase(values) => write!(out, "(case insensitive) [{}]", values.join(", ")),
            Self::NonNull => out.write_str("non-null string"),
            Self::NonEmpty => out.write_str("non-empty string"),
            Self::ListOf { entries: [], .. } => Ok(()),
            Self::ListOf { entries, .. } => write!(out, "[{}]", entries.join(", ")),
            Self::Voters | Self::Servers => out.write_str("non-empty list"),
            Self::ThrottledReplicas => out.write_str("[partitionId]:[brokerId],[partitionId]:[brokerId],..."),
            Self::OffsetReset => out.write_str("[latest, earliest, by_duration:PnDTnHnMn.nS]"),
        }
    }
}

fn check_range(
    value: &ConfigValue,
    min: f64,
    min_text: &dyn fmt::Display,
    max: Option<f64>,
    max_text: &dyn fmt::Display,
) -> Result<(), String> {
    let number = value.as_number();
    if number < min {
        return Err(format!("Value must be at least {min_text}"));
    }
    if max.is_some_and(|max| number > max) {
        return Err(format!("Value must be no more than {max_text}"));
    }
    Ok(())
}

fn check_list(values: &[String], entries: &[&str], may_be_empty: bool) -> Result<(), String> {
    let named = if entries.is_empty() { "any non-empty value".to_owned() } else { format!("[{}]", entries.join(", ")) };
    if values.is_empty() && !may_be_empty {
        return Err(format!("List must not be empty. Valid values include: {named}"));
    }
    for value in values {
        if value.is_empty() {
            return Err("Entries must not be empty".into());
        }
        if !entries.is_empty() && !entries.contains(&value.as_str()) {
            return Err(format!("String must be one of: {}", entries.join(", ")));
        }
    }
    Ok(())
}

fn check_each(values: &[String], is_valid: fn(&str) -> bool, form: &str) -> Result<(), String> {
    match values.iter().find(|value| !is_valid(value)) {
        Some(value) => Err(format!("Each entry should be in the form `{form}`, but one is '{value}'")),
        None => Ok(()),
    }
}

fn check_throttled(values: &[String]) -> Result<(), String> {
    let is_replica = |value: &String| {
        value.is_empty() || value.split_once(':').is_some_and(|(left, right)| is_digits(left) && is_digits(right))
    };
    if values.iter().all(is_replica) || values.concat() == "*" {
        return Ok(());
    }
    Err("Value must be '*' or a list of replicas as [partitionId]:[brokerId],[partitionId]:[brokerId],...".into())
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_voter(text: &str) -> bool {
    let Some((id, address)) = text.split_once('@') else { return false };
    id.parse::<i32>().is_ok_and(|id| id >= 0) && is_address(address)
}

/// `host:port`, with an IPv6 address in brackets.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-._%".contains(&byte);
    let host_is_valid = match host.strip_prefix('[') {
        Some(inner) => inner
            .strip_suffix(']')
            .is_some_and(|inner| !inner.is_empty() && inner.bytes().all(|byte| is_bare(byte) || byte == b':')),
        None => !host.is_empty() && host.bytes().all(is_bare),
    };
    host_is_valid && is_digits(port) && port.parse::<u16>().is_ok()
}

/// `earliest`, `latest`, or `by_duration:` with an ISO 8601 duration that is not negative.
fn is_offset_reset(text: &str) -> bool {
    match text.split_once(':') {
        None => text == "earliest" || text == "latest",
        Some((kind, duration)) => kind == "by_duration" && is_duration(duration),
    }
}

fn is_duration(text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    let Some(text) = text.strip_prefix('P') else { return false };
    let (days, time) = match text.split_once('T') {
        Some((days, time)) => (days, Some(time)),
        None => (text, None),
    };
    let days_are_valid = days.is_empty() || days.strip_suffix('D').is_some_and(is_digits);
    match time {
        None => days_are_valid && !days.is_empty(),
        Some(time) => days_are_valid && is_time(time),
    }
}

/// Hours, minutes and seconds in this order, each at most once, and at least one of them.
fn is_time(mut text: &str) -> bool {
    if text.is_empty() {
        return false;
    }
    for unit in ['H', 'M'] {
        if let Some((number, rest)) = text.split_once(unit) {
            if !is_digits(number) {
                return false;
            }
            text = rest;
        }
    }
    let Some(seconds) = text.strip_suffix('S') else { return text.is_empty() };
    match seconds.split_once('.') {
        Some((whole, part)) => is_digits(whole) && part.len() <= 9 && (part.is_empty() || is_digits(part)),
        None => is_digits(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_voters() {
        for text in ["localhost:9093", "10.0.0.1:1", "[::1]:9093", "[fe80::1%eth0]:9093", "a_b-c.d:65535"] {
            assert!(is_address(text), "{text}");
            assert!(is_voter(&format!("1@{text}")), "{text}");
        }
        for text in ["localhost", ":9093", "host:", "host:65536", "ho st:1", "::1:9093", "[]:1", "[::1:9093"] {
            assert!(!is_address(text), "{text}");
        }
        for text in ["localhost:9093", "@localhost:9093", "-1@localhost:9093", "x@localhost:9093"] {
            assert!(!is_voter(text), "{text}");
        }
    }

    #[test]
    fn durations() {
        for text in ["P1D", "PT1H", "PT1H30M", "P2DT3H4M5.5S", "pt0.000000001s", "PT5M", "PT10S"] {
            assert!(is_duration(text), "{text}");
        }
        for text in ["", "P", "PT", "1D", "P1", "PT1D", "PT-1H", "PT1S1H", "P1H", "PT1.0000000001S"] {
            assert!(!is_duration(text), "{text}");
        }
        assert!(is_offset_reset("by_duration:PT1H"));
        assert!(!is_offset_reset("by_duration:") && !is_offset_reset("none"));
    }
}
