//! What a configuration key is. The tables are written with its `const` builders, one line per key.

use std::borrow::Cow;

use super::allowed::Allowed;
use super::not_honoured;

/// What a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A broker or controller: server.properties, and BROKER resources.
    Node,
    Topic,
    Group,
    ClientMetrics,
}

impl Scope {
    pub const ALL: [Scope; 4] = [Scope::Node, Scope::Topic, Scope::Group, Scope::ClientMetrics];
}

/// The type of a value, with the number that DescribeConfigs gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigType {
    Boolean = 1,
    String = 2,
    Int = 3,
    Short = 4,
    Long = 5,
    Double = 6,
    List = 7,
    Class = 8,
    Password = 9,
}

impl ConfigType {
    /// The type's name as Kafka's messages write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
            Self::Class => "CLASS",
            Self::Password => "PASSWORD",
        }
    }
}

/// Whether a node's key can be changed at run time, and whether per broker or cluster-wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateMode {
    ReadOnly,
    PerBroker,
    ClusterWide,
}

/// A node's key that gives a topic's or a group's key its value when that has none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synonym {
    pub name: &'static str,
    /// The topic's value is the node's value times this: hours and minutes become milliseconds.
    pub factor: i64,
}

/// One configuration key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfigKey {
    pub scope: Scope,
    pub name: &'static str,
    pub value_type: ConfigType,
    /// The default as printed. `None`: there is none, and the value is null unless `is_required`.
    pub default: Option<&'static str>,
    pub is_required: bool,
    pub allowed: Allowed,
    pub update_mode: UpdateMode,
    /// What the key does; empty while klamm does not honour it (`not_honoured`).
    own_documentation: &'static str,
    /// Not shown unless set: for tests and tuning.
    pub is_internal: bool,
    /// Settable through the Admin API, not in server.properties.
    pub is_dynamic_only: bool,
    /// Node keys that give the default; the first one that is set wins.
    pub synonyms: &'static [Synonym],
}

impl ConfigKey {
    /// A password: never logged, described or sent.
    pub fn is_sensitive(&self) -> bool {
        self.value_type == ConfigType::Password
    }

    /// Whether klamm acts on the key. A key that it does not honour is known, checked and shown, and has no effect yet.
    pub fn is_honoured(&self) -> bool {
        !self.own_documentation.is_empty()
    }

    /// What the key does in Apache Kafka, and whether klamm does it too.
    pub fn documentation(&self) -> Cow<'static, str> {
        match not_honoured::documentation(self.scope, self.name) {
            Some(text) if !self.is_honoured() => format!("{text} This key has no effect in klamm yet.").into(),
            _ => self.own_documentation.into(),
        }
    }

    /// A key of klamm's own, which Apache Kafka does not have.
    pub fn is_ours(&self) -> bool {
        self.name.starts_with("klamm.")
    }

    pub(super) const fn new(scope: Scope, name: &'static str, value_type: ConfigType) -> Self {
        Self {
            scope,
            name,
            value_type,
            default: None,
            is_required: false,
            allowed: Allowed::Any,
            update_mode: UpdateMode::ReadOnly,
            own_documentation: "",
            is_internal: false,
            is_dynamic_only: false,
            synonyms: &[],
        }
    }

    pub(super) const fn default(mut self, text: &'static str) -> Self {
        self.default = Some(text);
        self
    }

    pub(super) const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    pub(super) const fn allowed(mut self, allowed: Allowed) -> Self {
        self.allowed = allowed;
        self
    }

    pub(super) const fn at_least(self, min: i64) -> Self {
        self.allowed(Allowed::AtLeast(min))
    }

    pub(super) const fn between(self, min: i64, max: i64) -> Self {
        self.allowed(Allowed::Between(min, max))
    }

    pub(super) const fn one_of(self, values: &'static [&'static str]) -> Self {
        self.allowed(Allowed::OneOf(values))
    }

    pub(super) const fn per_broker(mut self) -> Self {
        self.update_mode = UpdateMode::PerBroker;
        self
    }

    pub(super) const fn cluster_wide(mut self) -> Self {
        self.update_mode = UpdateMode::ClusterWide;
        self
    }

    pub(super) const fn internal(mut self) -> Self {
        self.is_internal = true;
        self
    }

    pub(super) const fn dynamic_only(mut self) -> Self {
        self.is_dynamic_only = true;
        self
    }

    pub(super) const fn synonyms(mut self, synonyms: &'static [Synonym]) -> Self {
        self.synonyms = synonyms;
        self
    }

    pub(super) const fn doc(mut self, documentation: &'static str) -> Self {
        self.own_documentation = documentation;
        self
    }
}

/// The node's key of that name, with its value unchanged.
pub(super) const fn same(name: &'static str) -> Synonym {
    Synonym { name, factor: 1 }
}

/// The node's key of that name, in units of `factor` milliseconds.
pub(super) const fn times(name: &'static str, factor: i64) -> Synonym {
    Synonym { name, factor }
}
