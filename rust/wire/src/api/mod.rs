//! The table of all APIs: versions, listeners, what serves each API, how it is authorized, and which quota counts it.

mod table;

use table::APIS;

use klamm_base::ErrorCode;
pub use table::*;

/// The purpose of a listener (`listeners` in a message's schema).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListenerKind {
    Broker,
    Controller,
}

/// What serves an API on a kind of listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The engine, on the network threads.
    ByEngine,
    /// A handler in Python.
    ByPython,
    /// Apache Kafka serves it there; klamm does not yet.
    NotYet,
    /// It is not served there (`listeners` in the message's schema).
    Not,
}

/// The operation that a principal requests (`AclOperation`).
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

/// The type of the resource (`ResourceType`).
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
    /// The error code if the principal lacks the right to a resource that the request names.
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

/// The client quota that counts an API (`QuotaType`). Byte and mutation quotas count in addition to the request
/// quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// `producer_byte_rate`.
    ProduceBytes,
    /// `consumer_byte_rate`.
    FetchBytes,
    /// `controller_mutation_rate`.
    ControllerMutation,
    /// Only `request_percentage`.
    Request,
    /// None: requests between brokers and controllers that keep the cluster alive.
    Exempt,
}

/// One API as Apache Kafka 4.3 defines it, and how klamm serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    pub key: i16,
    pub name: &'static str,
    /// Lowest and highest accepted version, without unstable versions.
    pub version_min: i16,
    pub version_max: i16,
    /// First version with tagged fields (KIP-482).
    flexible_from: i16,
    pub on_broker: Served,
    pub on_controller: Served,
    /// Whether a broker forwards it, completely or in part, to the active controller (KIP-590).
    pub is_forwarded: bool,
    /// Whether it is allowed on an unauthenticated connection.
    pub is_before_authentication: bool,
    /// The checks of an authorizer, in order; the request determines which of them apply.
    pub checks: &'static [Check],
    pub quota: Quota,
}

impl Api {
    /// The API with this key; `None` if Kafka 4.3 does not know it or does not serve it any more.
    pub fn of(key: i16) -> Option<&'static Api> {
        APIS.binary_search_by_key(&key, |api| api.key).ok().map(|at| &APIS[at])
    }

    /// All APIs, by key.
    pub fn all() -> &'static [Api] {
        APIS
    }

    /// Whether `version` uses compact lengths and tagged fields.
    #[inline]
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    /// The position of the throttle time in a response body, if it is the same in all responses of that version.
    pub fn throttle_time_at(&self, version: i16) -> Option<usize> {
        let (from, position) = match self.key {
            PRODUCE | API_VERSIONS | SASL_HANDSHAKE | SASL_AUTHENTICATE | WRITE_TXN_MARKERS => return None,
            CREATE_DELEGATION_TOKEN | RENEW_DELEGATION_TOKEN | EXPIRE_DELEGATION_TOKEN => return None,
            DESCRIBE_DELEGATION_TOKEN | VOTE | BEGIN_QUORUM_EPOCH | END_QUORUM_EPOCH => return None,
            DESCRIBE_QUORUM | ENVELOPE => return None,
            INITIALIZE_SHARE_GROUP_STATE..=READ_SHARE_GROUP_STATE_SUMMARY => return None,
            METADATA | OFFSET_COMMIT | OFFSET_FETCH => (3, 0),
            LIST_OFFSETS | JOIN_GROUP => (2, 0),
            FIND_COORDINATOR | HEARTBEAT | LEAVE_GROUP | SYNC_GROUP | DESCRIBE_GROUPS | LIST_GROUPS => (1, 0),
            // Behind the error code.
            OFFSET_DELETE => (0, 2),
            _ => (0, 0),
        };
        (version >= from).then_some(position)
    }

    /// The operation on this type of resource that an authorizer checks first; `None` if it checks none.
    pub fn operation_on(&self, resource: Resource) -> Option<Operation> {
        self.checks.iter().find(|check| check.resource == resource).map(|check| check.operation)
    }

    /// What serves it on this kind of listener.
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
