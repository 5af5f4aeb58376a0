//! The step in which a principal's right to what its request names is checked (KIP-11).

use klamm_wire::api::{Operation, Resource};

use crate::link::Link;

/// What decides about rights (`authorizer.class.name`).
#[derive(Debug, Default)]
pub enum Authorizer {
    /// Everything is allowed: no authorizer is configured.
    #[default]
    AllowAll,
    /// Everything is allowed but operations on one resource.
    #[cfg(test)]
    AllBut(Resource, &'static str),
}

impl Authorizer {
    /// Whether the principal of the connection may do this to the resource of that name.
    #[inline]
    pub fn allows(&self, _connection: &Link, _operation: Operation, _resource: Resource, _name: &str) -> bool {
        match self {
            Self::AllowAll => true,
            #[cfg(test)]
            Self::AllBut(resource, name) => (*resource, *name) != (_resource, _name),
        }
    }
}
