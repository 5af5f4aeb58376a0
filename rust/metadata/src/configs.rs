//! Dynamic configuration, by resource.
use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::ordmap::DiffItem;

use crate::records::ConfigRecord;

/// Resource type of a topic.
pub const TOPIC: i8 = 2;
/// Resource type of a broker; the empty name is the cluster-wide default.
pub const BROKER: i8 = 4;

/// The resource of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResource {
    /// 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    pub resource_type: i8,
    pub name: Arc<str>,
}

impl ConfigResource {
    /// A resource of the given type.
    pub fn new(resource_type: i8, name: &str) -> Self {
        Self { resource_type, name: name.into() }
    }
}

/// The values of one resource by ascending key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceConfig(Vec<(Box<str>, Box<str>)>);

impl ResourceConfig {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Keys and values by ascending key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    fn set(&mut self, key: &str, value: Option<&str>) {
        match (self.0.binary_search_by(|(known, _)| (**known).cmp(key)), value) {
            (Ok(at), Some(value)) => self.0[at].1 = value.into(),
            (Ok(at), None) => drop(self.0.remove(at)),
            (Err(at), Some(value)) => self.0.insert(at, (key.into(), value.into())),
            (Err(_), None) => {}
        }
    }
}

/// All dynamic configuration. It contains only resources with values.
#[derive(Clone, Debug, Default)]
pub struct ConfigsImage {
    values: imbl::OrdMap<ConfigResource, Arc<ResourceConfig>>,
    /// How often values of each broker, and of the cluster-wide default, were set: a broker reloads its key stores
    /// even if a value is set to the same value.
    broker_sets: imbl::OrdMap<ConfigResource, u64>,
}

impl ConfigsImage {
    /// The values of a resource; `None` if none is set.
    pub fn get(&self, resource_type: i8, name: &str) -> Option<&Arc<ResourceConfig>> {
        if self.values.is_empty() {
            return None;
        }
        self.values.get(&ConfigResource::new(resource_type, name))
    }

    /// One value of a resource.
    pub fn value(&self, resource_type: i8, name: &str, key: &str) -> Option<&str> {
        self.get(resource_type, name)?.get(key)
    }

    /// Resources and their values, in ascending order of type and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ConfigResource, &Arc<ResourceConfig>)> {
        self.values.iter()
    }

    /// The resources whose values differ in `newer`, and the brokers for which any value was set.
    pub fn changed_in(&self, newer: &Self) -> Vec<ConfigResource> {
        let values = self.values.diff(&newer.values).map(|item| match item {
            DiffItem::Add(resource, _) | DiffItem::Remove(resource, _) => resource,
            DiffItem::Update { old: (resource, _), .. } => resource,
        });
        let sets = self.broker_sets.diff(&newer.broker_sets).map(|item| match item {
            DiffItem::Add(resource, _) | DiffItem::Remove(resource, _) => resource,
            DiffItem::Update { old: (resource, _), .. } => resource,
        });
        let changed: BTreeSet<&ConfigResource> = values.chain(sets).collect();
        changed.into_iter().cloned().collect()
    }

    pub(super) fn set(&mut self, record: &ConfigRecord<'_>) {
        let resource = ConfigResource::new(record.resource_type, record.resource_name);
        if resource.resource_type == BROKER {
            *self.broker_sets.entry(resource.clone()).or_default() += 1;
        }
        let mut config = self.values.get(&resource).map(|config| (**config).clone()).unwrap_or_default();
        config.set(record.name, record.value);
        if config.0.is_empty() {
            self.values.remove(&resource);
        } else {
            self.values.insert(resource, Arc::new(config));
        }
    }

    pub(super) fn remove(&mut self, resource_type: i8, name: &str) {
        if !self.values.is_empty() {
            self.values.remove(&ConfigResource::new(resource_type, name));
        }
    }
}

impl PartialEq for ConfigsImage {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}
