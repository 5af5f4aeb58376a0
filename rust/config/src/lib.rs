//! Every configuration key, described once: name, type, default, allowed values, when it can be changed, and in our
//! words what it does (Kafka's `ConfigDef`). Python reads this table through `klamm._engine.config`.
//!
//! A key that klamm does not honour yet is known, checked and shown; `not_honoured` says what it does in Kafka.

mod allowed;
mod client_metrics;
mod group;
mod key;
mod klamm;
mod node;
mod not_honoured;
mod settings;
mod topic;
mod value;

pub use allowed::Allowed;
pub use key::{ConfigKey, ConfigType, Scope, Synonym, UpdateMode};
pub use settings::Settings;
pub use value::{ConfigError, ConfigValue, parse_value};

/// The keys of a scope: Kafka's, and for a node klamm's own after them. Each table is sorted by name.
pub fn keys(scope: Scope) -> impl Iterator<Item = &'static ConfigKey> {
    tables(scope).iter().flat_map(|table| table.iter())
}

/// The key of that name.
pub fn find(scope: Scope, name: &str) -> Option<&'static ConfigKey> {
    tables(scope).iter().find_map(|table| {
        let at = table.binary_search_by(|key| key.name.cmp(name)).ok()?;
        table.get(at)
    })
}

/// Parses and checks a value for the key of that name.
pub fn parse(scope: Scope, name: &str, text: &str) -> Result<ConfigValue, ConfigError> {
    let key = find(scope, name).ok_or_else(|| ConfigError::Unknown { scope, name: name.to_owned() })?;
    parse_value(key, text)
}

fn tables(scope: Scope) -> &'static [&'static [ConfigKey]] {
    match scope {
        Scope::Node => &[node::KEYS, klamm::KEYS],
        Scope::Topic => &[topic::KEYS],
        Scope::Group => &[group::KEYS],
        Scope::ClientMetrics => &[client_metrics::KEYS],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_names_are_unique() {
        for scope in Scope::ALL {
            for table in tables(scope) {
                let names: Vec<_> = table.iter().map(|key| key.name).collect();
                assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{scope:?}: {names:?}");
            }
        }
    }

    #[test]
    fn every_key_is_found_and_belongs_to_its_scope() {
        for scope in Scope::ALL {
            for key in keys(scope) {
                assert_eq!(find(scope, key.name), Some(key));
                assert_eq!(key.scope, scope, "{}", key.name);
            }
        }
        assert_eq!(find(Scope::Node, "no.such.key"), None);
    }

    #[test]
    fn every_key_is_documented_in_one_place() {
        for scope in Scope::ALL {
            for key in keys(scope) {
                let elsewhere = not_honoured::documentation(scope, key.name);
                assert_eq!(key.is_honoured(), elsewhere.is_none(), "{}: `doc` or `not_honoured`, not both", key.name);
                assert!(key.documentation().ends_with('.'), "{}", key.name);
            }
            let names: Vec<_> = not_honoured::table(scope).iter().map(|(name, _)| *name).collect();
            assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{scope:?}: {names:?}");
            assert!(names.iter().all(|name| find(scope, name).is_some()), "{scope:?}: a key that does not exist");
        }
    }

    #[test]
    fn the_keys_of_share_groups_have_an_effect() {
        let of_share_groups = |key: &&ConfigKey| match key.scope {
            Scope::Node => key.name.starts_with("group.share.") && key.name != "group.share.persister.class.name",
            scope => scope == Scope::Group && key.name.starts_with("share."),
        };
        let keys: Vec<_> = Scope::ALL.into_iter().flat_map(keys).filter(of_share_groups).collect();
        assert_eq!(keys.len(), 31);
        assert!(keys.iter().all(|key| key.is_honoured()));
    }

    #[test]
    fn every_default_is_allowed_and_prints_as_itself() {
        for key in Scope::ALL.into_iter().flat_map(keys) {
            if let Some(default) = key.default {
                let value = parse_value(key, default).unwrap_or_else(|error| panic!("{}: {error}", key.name));
                assert_eq!(value.to_string(), default, "{}", key.name);
            }
        }
    }

    #[test]
    fn every_synonym_is_a_node_key() {
        for key in Scope::ALL.into_iter().flat_map(keys) {
            for synonym in key.synonyms {
                assert!(find(Scope::Node, synonym.name).is_some(), "{} -> {}", key.name, synonym.name);
            }
        }
    }

    #[test]
    fn the_counts_are_those_of_kafka_4_3_1() {
        let count = |scope, internal| keys(scope).filter(|key| key.is_internal == internal && !key.is_ours()).count();
        // The node's three replication quotas can only be set dynamically, so they are not among its static keys.
        assert_eq!(keys(Scope::Node).filter(|key| key.is_dynamic_only).count(), 3);
        assert_eq!((count(Scope::Node, false), count(Scope::Node, true)), (NODE_KEYS + 3, 20));
        assert_eq!((count(Scope::Topic, false), count(Scope::Topic, true)), (33, 1));
        assert_eq!(count(Scope::Group, false), 17);
        assert_eq!(count(Scope::ClientMetrics, false), 3);
    }

    const NODE_KEYS: usize = 340;
}
