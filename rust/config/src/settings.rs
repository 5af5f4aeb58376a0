//! What a node was configured with: settings by key, defaults from the table.

use std::collections::HashMap;

use super::{ConfigError, ConfigKey, ConfigValue, Scope, find, parse, parse_value};

/// Values by key as they were written. Keys that are absent have the table's default.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    values: HashMap<String, String>,
}

impl Settings {
    /// Checks every value; unknown keys are refused.
    pub fn new(values: HashMap<String, String>) -> Result<Self, ConfigError> {
        for (name, text) in &values {
            parse(Scope::Node, name, text)?;
        }
        Ok(Self { values })
    }

    /// The value of a node's key: as set, else its default, else `None`.
    pub fn get(&self, name: &str) -> Option<ConfigValue> {
        let key = find(Scope::Node, name).expect("the engine asks for keys of the table");
        let text = self.values.get(name).map(String::as_str).or(key.default)?;
        Some(parse_value(key, text).expect("values are checked when they are set, defaults by a test"))
    }

    /// A whole number: of a key that always has one.
    pub fn number(&self, name: &str) -> i64 {
        self.get(name).as_ref().and_then(ConfigValue::whole).expect("a numeric key with a default")
    }

    /// A truth value: of a key that always has one.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some(ConfigValue::Boolean(true))
    }

    /// The value as text; empty when there is none.
    pub fn text(&self, name: &str) -> String {
        self.get(name).map(|value| value.to_string()).unwrap_or_default()
    }

    /// Whether the key was set, not left to its default.
    pub fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The value of a topic's key: its own, else what the node says, else the default.
    pub fn topic_value(&self, own: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<ConfigValue> {
        let key = find(Scope::Topic, name).expect("a topic's key of the table");
        if let Some(value) = own(name).and_then(|text| parse_value(key, &text).ok()) {
            return Some(value);
        }
        self.inherited(key).or_else(|| key.default.and_then(|text| parse_value(key, text).ok()))
    }

    fn inherited(&self, key: &'static ConfigKey) -> Option<ConfigValue> {
        key.synonyms.iter().filter(|synonym| self.is_set(synonym.name)).find_map(|synonym| {
            let value = self.get(synonym.name)?;
            match value.whole() {
                // -1 hours is no limit, as -1 ms is.
                Some(number) if synonym.factor != 1 && number >= 0 => {
                    parse_value(key, &number.saturating_mul(synonym.factor).to_string()).ok()
                }
                _ => parse_value(key, &value.to_string()).ok(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_values_are_refused() {
        assert!(Settings::new(HashMap::from([("log.segment.bytes".to_owned(), "x".to_owned())])).is_err());
        assert!(Settings::new(HashMap::from([("no.such.key".to_owned(), "x".to_owned())])).is_err());
    }
}
