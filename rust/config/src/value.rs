//! A configuration value: parsed, checked, and printed as Kafka prints it.

use std::fmt;

use super::key::{ConfigKey, ConfigType, Scope};

/// A value that was refused, with an explanation for the user or client that set it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{}{name}", unknown(*.scope))]
    Unknown { scope: Scope, name: String },
    #[error("Invalid value {value} for configuration {name}: {reason}")]
    Invalid { name: &'static str, value: String, reason: String },
}

fn unknown(scope: Scope) -> &'static str {
    match scope {
        Scope::Node => "Unknown broker config name: ",
        Scope::Topic => "Unknown topic config name: ",
        Scope::Group => "Unknown group config name: ",
        Scope::ClientMetrics => "Unknown client metrics configuration: ",
    }
}

/// A value of a key. Int, Short and Long share a variant: their bounds were checked when they were parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigValue {
    Boolean(bool),
    Int(i64),
    Double(f64),
    /// String, Class and Password.
    Text(String),
    List(Vec<String>),
}

impl ConfigValue {
    /// The whole number, if it is one.
    pub fn whole(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The number that is compared with ranges, as Kafka compares it.
    pub(super) fn as_number(&self) -> f64 {
        match self {
            Self::Int(value) => *value as f64,
            Self::Double(value) => *value,
            other => unreachable!("{other:?} is no number: ranges belong to numeric keys"),
        }
    }
}

impl fmt::Display for ConfigValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => write!(out, "{value}"),
            Self::Int(value) => write!(out, "{value}"),
            Self::Double(value) => out.write_str(&double_text(*value)),
            Self::Text(text) => out.write_str(text),
            Self::List(values) => out.write_str(&values.join(",")),
        }
    }
}

/// Parses `text` as the key's type and checks it against the allowed values. Surrounding white space is ignored.
pub fn parse_value(key: &'static ConfigKey, text: &str) -> Result<ConfigValue, ConfigError> {
    let refuse = |reason: String| ConfigError::Invalid { name: key.name, value: shown(key, text), reason };
    let value = parse_type(key.value_type, trim(text)).map_err(refuse)?;
    key.allowed.check(&value).map_err(refuse)?;
    Ok(value)
}

/// Hides a refused password: the message may go to a log or to another machine.
fn shown(key: &ConfigKey, text: &str) -> String {
    if key.is_sensitive() { "[hidden]".to_owned() } else { text.to_owned() }
}

/// Trims what Java's `String.trim` trims.
fn trim(text: &str) -> &str {
    text.trim_matches(|character| character <= ' ')
}

fn parse_type(value_type: ConfigType, text: &str) -> Result<ConfigValue, String> {
    match value_type {
        ConfigType::Boolean => parse_boolean(text),
        ConfigType::Int => parse_integer(value_type, text, i64::from(i32::MIN), i64::from(i32::MAX)),
        ConfigType::Short => parse_integer(value_type, text, i64::from(i16::MIN), i64::from(i16::MAX)),
        ConfigType::Long => parse_integer(value_type, text, i64::MIN, i64::MAX),
        ConfigType::Double => parse_double(text),
        ConfigType::List => Ok(ConfigValue::List(parse_list(text))),
        ConfigType::String | ConfigType::Class | ConfigType::Password => Ok(ConfigValue::Text(text.to_owned())),
    }
}

fn parse_boolean(text: &str) -> Result<ConfigValue, String> {
    if text.eq_ignore_ascii_case("true") {
        Ok(ConfigValue::Boolean(true))
    } else if text.eq_ignore_ascii_case("false") {
        Ok(ConfigValue::Boolean(false))
    } else {
        Err("Expected value to be either true or false".into())
    }
}

fn parse_integer(value_type: ConfigType, text: &str, min: i64, max: i64) -> Result<ConfigValue, String> {
    match text.parse::<i64>() {
        Ok(value) if (min..=max).contains(&value) => Ok(ConfigValue::Int(value)),
        _ => Err(format!("Not a number of type {}", value_type.name())),
    }
}

/// As Java reads it, except hexadecimal digits. `NaN` is outside no range, so Apache Kafka accepts it.
fn parse_double(text: &str) -> Result<ConfigValue, String> {
    match text.trim_start_matches(['+', '-']) {
        "NaN" => return Ok(ConfigValue::Double(f64::NAN)),
        "Infinity" => {
            return Ok(ConfigValue::Double(if text.starts_with('-') { -f64::INFINITY } else { f64::INFINITY }));
        }
        _ => {}
    }
    let digits = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    match digits.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(ConfigValue::Double(value)),
        _ => Err(format!("Not a number of type {}", ConfigType::Double.name())),
    }
}

/// Entries between commas, without surrounding white space and without duplicates.
fn parse_list(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    if text.is_empty() {
        return entries;
    }
    for entry in text.split(',') {
        let entry = entry.trim_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
        if !entries.iter().any(|known| known == entry) {
            entries.push(entry.to_owned());
        }
    }
    entries
}

/// As Java's `Double.toString`: always a decimal point, an exponent below 10^-3 and from 10^7.
fn double_text(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-3..1e7).contains(&magnitude) {
        let text = format!("{value:E}");
        return if text.contains('.') { text } else { text.replace('E', ".0E") };
    }
    let text = value.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Scope, find, parse};
    use super::*;

    fn refusal(scope: Scope, name: &str, text: &str) -> String {
        parse(scope, name, text).expect_err("must be refused").to_string()
    }

    #[test]
    fn a_refusal_names_key_value_and_what_is_allowed() {
        let topic = |name, text| refusal(Scope::Topic, name, text);
        assert_eq!(
            topic("segment.bytes", "-1"),
            "Invalid value -1 for configuration segment.bytes: Value must be at least 1048576"
        );
        assert_eq!(
            topic("retention.ms", "soon"),
            "Invalid value soon for configuration retention.ms: Not a number of type LONG"
        );
        assert_eq!(
            topic("segment.bytes", "2147483648"),
            "Invalid value 2147483648 for configuration segment.bytes: Not a number of type INT"
        );
        assert_eq!(
            topic("cleanup.policy", "shrink"),
            "Invalid value shrink for configuration cleanup.policy: String must be one of: compact, delete"
        );
        assert_eq!(
            topic("min.cleanable.dirty.ratio", "1.5"),
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"
        );
        assert_eq!(
            topic("preallocate", "yes"),
            "Invalid value yes for configuration preallocate: Expected value to be either true or false"
        );
        assert_eq!(topic("no.such", "1"), "Unknown topic config name: no.such");
    }

    #[test]
    fn a_password_is_not_repeated() {
        let key: &'static ConfigKey = find(Scope::Node, "ssl.key.password").expect("a key of KafkaConfig");
        assert_eq!(shown(key, "secret"), "[hidden]");
        assert_eq!(parse_value(key, " secret "), Ok(ConfigValue::Text("secret".into())));
    }

    #[test]
    fn lists_split_at_commas_and_drop_repetitions() {
        let policy = |text| parse(Scope::Topic, "cleanup.policy", text).map(|value| value.to_string());
        assert_eq!(policy(" compact , delete,compact "), Ok("compact,delete".to_owned()));
        assert_eq!(policy(""), Ok(String::new()));
        assert!(policy("compact,,delete").is_err());
        assert!(parse(Scope::Node, "log.dirs", "").is_err());
        assert!(parse(Scope::Node, "controller.quorum.voters", "").is_ok());
        assert!(parse(Scope::Node, "controller.quorum.voters", "1@localhost:9093, 2@[::1]:9093").is_ok());
        assert!(parse(Scope::Node, "controller.quorum.voters", "localhost:9093").is_err());
        assert!(parse(Scope::Topic, "leader.replication.throttled.replicas", "0:1,2:3").is_ok());
        assert!(parse(Scope::Topic, "leader.replication.throttled.replicas", "*").is_ok());
        assert!(parse(Scope::Topic, "leader.replication.throttled.replicas", "0-1").is_err());
    }

    #[test]
    fn gzip_has_a_hole_in_its_range() {
        for (level, is_allowed) in [("-1", true), ("0", false), ("1", true), ("9", true), ("10", false)] {
            assert_eq!(parse(Scope::Topic, "compression.gzip.level", level).is_ok(), is_allowed, "{level}");
        }
    }

    #[test]
    fn doubles_are_printed_as_java_prints_them() {
        for (value, text) in [
            (0.5, "0.5"),
            (1.0, "1.0"),
            (0.0, "0.0"),
            (1e7, "1.0E7"),
            (9_999_999.0, "9999999.0"),
            (0.001, "0.001"),
            (0.0001, "1.0E-4"),
            (1.25e-5, "1.25E-5"),
            (f64::MAX, "1.7976931348623157E308"),
        ] {
            assert_eq!(double_text(value), text);
        }
        for text in ["nan", "inf", "infinity", "", "1.0.0", "0x1p3"] {
            assert!(parse_double(text).is_err(), "{text}");
        }
        assert!(matches!(parse_double("NaN"), Ok(ConfigValue::Double(value)) if value.is_nan()));
        assert_eq!(parse_double("-Infinity"), Ok(ConfigValue::Double(-f64::INFINITY)));
        assert_eq!(parse_double("1d"), Ok(ConfigValue::Double(1.0)));
    }

    proptest! {
        #[test]
        fn no_text_of_any_key_panics_and_what_is_accepted_prints_stably(text in ".{0,40}", number in any::<i64>()) {
            for key in Scope::ALL.into_iter().flat_map(super::super::keys) {
                for text in [text.as_str(), &number.to_string()] {
                    if let Ok(value) = parse_value(key, text) {
                        prop_assert_eq!(parse_value(key, &value.to_string()), Ok(value));
                    }
                }
            }
        }
    }
}
