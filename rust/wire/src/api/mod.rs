//! The one table of APIs: versions, listeners, what serves an API, who may ask for it, and which quota counts it.

mod table;

use table::APIS;

use klamm_base::ErrorCode;
pub use table::*;

/// What a listener is for (the `listeners` of a message's schema).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListenerKind {
    Broker,
    Controller,
}

/// What serves an API on a kind of listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The engine, on the network's threads.
    ByEngine,
    /// A handler in Python.
    ByPython,
    /// Apache Kafka serves it there, klamm does not yet.
    NotYet,
    /// It does not belong there (the `listeners` of the message's schema).
    Not,
}

/// What a principal wants to do (`AclOperation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Create,
    Delete,
    Alter,
    Describe,
    ClusterAction,
    DescribeConfigs,
    AlterConfigs,
    IdempotentWrite,
    CreateTokens,
    DescribeTokens,
    TwoPhaseCommit,
}

/// The kind of resource that it is done to (`ResourceType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Topic,
    Group,
    Cluster,
    TransactionalId,
    DelegationToken,
    User,
}

/// One check of an authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    pub operation: Operation,
    pub resource: Resource,
}

impl Resource {
    /// What a request that names such a resource without the right to it is answered.
    pub fn refusal(self) -> ErrorCode {
        match self {
            Self::Topic => ErrorCode::TOPIC_AUTHORIZATION_FAILED,
            Self::Group => ErrorCode::GROUP_AUTHORIZATION_FAILED,
            Self::Cluster | Self::User => ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
            Self::TransactionalId => ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            Self::DelegationToken => ErrorCode::DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        }
    }
}

impl Check {
    const fn new(operation: Operation, resource: Resource) -> Self {
        Self { operation, resource }
    }
}

/// The client quota that counts an API (`QuotaType`). The quotas of bytes and of mutations count beside that of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// `producer_byte_rate`.
    ProduceBytes,
    /// `consumer_byte_rate`.
    FetchBytes,
    /// `controller_mutation_rate`.
    ControllerMutation,
    /// `request_percentage` alone.
    Request,
    /// None: what brokers and controllers ask each other to keep the cluster alive.
    Exempt,
}

/// One API as Apache Kafka 4.3 serves it, and what klamm makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    pub key: i16,
    pub name: &'static str,
    /// Lowest and highest version that is accepted; unstable versions are left out.
    pub version_min: i16,
    pub version_max: i16,
    /// First version with tagged fields (KIP-482).
    flexible_from: i16,
    pub on_broker: Served,
    pub on_controller: Served,
    /// Whether a broker forwards it, wholly or in part, to the active controller (KIP-590).
    pub is_forwarded: bool,
    /// Whether it is allowed on a connection that has not authenticated.
    pub is_before_authentication: bool,
    /// What an authorizer checks, in this order; which of them, the request says.
    pub checks: &'static [Check],
    pub quota: Quota,
}

impl Api {
    /// The API of a key; `None` for one that Kafka 4.3 does not know or does not serve any more.
    pub fn of(key: i16) -> Option<&'static Api> {
        APIS.binary_search_by_key(&key, |api| api.key).ok().map(|at| &APIS[at])
    }

    /// All APIs by key.
    pub fn all() -> &'static [Api] {
        APIS
    }

    /// Whether `version` writes lengths compactly and has tagged fields.
    #[inline]
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    /// The operation on such resources that an authorizer checks first; `None` where it checks none.
    pub fn operation_on(&self, resource: Resource) -> Option<Operation> {
        self.checks.iter().find(|check| check.resource == resource).map(|check| check.operation)
    }

    /// What serves it on a listener of this kind.
    pub fn served_on(&self, kind: ListenerKind) -> Served {
        match kind {
            ListenerKind::Broker => self.on_broker,
            ListenerKind::Controller => self.on_controller,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend_so_that_they_are_found() {
        assert!(APIS.windows(2).all(|pair| pair[0].key < pair[1].key));
        assert_eq!(Api::of(PRODUCE).map(|api| (api.version_min, api.version_max)), Some((3, 13)));
        assert_eq!(Api::of(DESCRIBE_TOPIC_PARTITIONS).map(|api| api.name), Some("DescribeTopicPartitions"));
        for removed in [-1, 4, 5, 6, 7, 93] {
            assert_eq!(Api::of(removed), None);
        }
    }

    #[test]
    fn listeners_are_those_of_the_schemas() {
        let count = |kind| APIS.iter().filter(|api| api.served_on(kind) != Served::Not).count();
        assert_eq!(count(ListenerKind::Broker), 77);
        assert_eq!(count(ListenerKind::Controller), 41);
    }
}
