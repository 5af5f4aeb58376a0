//! ACLs, SCRAM credentials and delegation tokens.

use std::sync::Arc;

use klamm_base::Uuid;
use klamm_metadata::security::{Acl, DelegationToken, ScramCredential};
use pyo3::prelude::*;

use crate::getters::getters;
use crate::id::Id;

/// One ACL.
#[pyclass(frozen, eq, module = "klamm._engine.metadata")]
#[derive(PartialEq)]
pub struct AclInfo(pub Uuid, pub Arc<Acl>);

getters! {
    AclInfo {
        id: Id = |it| Id(it.0);
        resource_type: i8 = |it| it.1.resource_type;
        resource_name: &str = |it| &it.1.resource_name;
        pattern_type: i8 = |it| it.1.pattern_type;
        principal: &str = |it| &it.1.principal;
        host: &str = |it| &it.1.host;
        operation: i8 = |it| it.1.operation;
        permission_type: i8 = |it| it.1.permission_type;
    }
}

/// A SCRAM credential.
#[pyclass(frozen, eq, module = "klamm._engine.metadata")]
#[derive(PartialEq)]
pub struct ScramInfo(pub Arc<ScramCredential>);

getters! {
    ScramInfo {
        salt: &[u8] = |it| &it.0.salt;
        stored_key: &[u8] = |it| &it.0.stored_key;
        server_key: &[u8] = |it| &it.0.server_key;
        iterations: i32 = |it| it.0.iterations;
    }
}

/// A delegation token.
#[pyclass(frozen, eq, module = "klamm._engine.metadata")]
#[derive(PartialEq)]
pub struct DelegationTokenInfo(pub Arc<str>, pub Arc<DelegationToken>);

getters! {
    DelegationTokenInfo {
        token_id: &str = |it| &it.0;
        owner: &str = |it| &it.1.owner;
        requester: &str = |it| &it.1.requester;
        renewers: Vec<String> = |it| it.1.renewers.clone();
        issue_timestamp: i64 = |it| it.1.issue_timestamp;
        max_timestamp: i64 = |it| it.1.max_timestamp;
        expiration_timestamp: i64 = |it| it.1.expiration_timestamp;
    }
}

/// Adds what this file defines to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<AclInfo>()?;
    module.add_class::<ScramInfo>()?;
    module.add_class::<DelegationTokenInfo>()
}
