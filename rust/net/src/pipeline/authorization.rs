//! The step that checks a principal's right to the resources of its request (KIP-11).

use klamm_wire::api::{Operation, Resource};

use crate::link::Link;

/// The authorizer (`authorizer.class.name`).
#[derive(Debug, Default)]
pub enum Authorizer {
    /// Everything is allowed because no authorizer is configured.
    #[default]
    AllowAll,
    /// Everything is allowed except for operations on one resource.
    #[cfg(test)]
    AllBut(Resource, &'static str),
}

impl Authorizer {
    /// Whether the connection's principal may perform the operation on the resource with this name.
    #[inline]
    pub fn allows(&self, _connection: &Link, _operation: Operation, _resource: Resource, _name: &str) -> bool {
        match self {
            Self::AllowAll => true,
            #[cfg(test)]
            Self::AllBut(resource, name) => (*resource, *name) != (_resource, _name),
        }
    }
}
