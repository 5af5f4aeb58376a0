//! Client quotas, ACLs, SCRAM credentials and delegation tokens in the image.
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::records::{AccessControlEntryRecord, DelegationTokenRecord, EntityData, UserScramCredentialRecord};

/// The entity of a quota: entity type (user, client-id, ip) to name; no name is the type's default entity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuotaEntity(pub BTreeMap<String, Option<String>>);

impl QuotaEntity {
    pub(super) fn from_records<'r>(parts: impl Iterator<Item = EntityData<'r>>) -> Self {
        Self(parts.map(|part| (part.entity_type.to_owned(), part.entity_name.map(str::to_owned))).collect())
    }
}

/// The quotas of an entity by key.
pub type Quotas = BTreeMap<String, f64>;

/// The quotas of every entity that has any.
pub type ClientQuotas = imbl::OrdMap<QuotaEntity, Arc<Quotas>>;

/// One ACL. The numbers are those of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Acl {
    pub resource_type: i8,
    pub resource_name: String,
    pub pattern_type: i8,
    pub principal: String,
    pub host: String,
    pub operation: i8,
    pub permission_type: i8,
}

impl From<&AccessControlEntryRecord<'_>> for Acl {
    fn from(record: &AccessControlEntryRecord<'_>) -> Self {
        Self {
            resource_type: record.resource_type,
            resource_name: record.resource_name.to_owned(),
            pattern_type: record.pattern_type,
            principal: record.principal.to_owned(),
            host: record.host.to_owned(),
            operation: record.operation,
            permission_type: record.permission_type,
        }
    }
}

/// The user and mechanism of a SCRAM credential.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScramKey {
    /// 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    pub mechanism: i8,
    pub user: String,
}

/// A SCRAM credential.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    pub salt: Vec<u8>,
    pub stored_key: Vec<u8>,
    pub server_key: Vec<u8>,
    pub iterations: i32,
}

impl From<&UserScramCredentialRecord<'_>> for ScramCredential {
    fn from(record: &UserScramCredentialRecord<'_>) -> Self {
        Self {
            salt: record.salt.to_vec(),
            stored_key: record.stored_key.to_vec(),
            server_key: record.server_key.to_vec(),
            iterations: record.iterations,
        }
    }
}

/// A delegation token. Timestamps are ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegationToken {
    pub owner: String,
    pub requester: String,
    pub renewers: Vec<String>,
    pub issue_timestamp: i64,
    pub max_timestamp: i64,
    pub expiration_timestamp: i64,
}

impl From<&DelegationTokenRecord<'_>> for DelegationToken {
    fn from(record: &DelegationTokenRecord<'_>) -> Self {
        Self {
            owner: record.owner.to_owned(),
            requester: record.requester.to_owned(),
            renewers: record.renewers.iter().map(str::to_owned).collect(),
            issue_timestamp: record.issue_timestamp,
            max_timestamp: record.max_timestamp,
            expiration_timestamp: record.expiration_timestamp,
        }
    }
}
