//! The table of APIs. Versions and listeners are those of Kafka 4.3's schemas without unstable versions; the checks
//! are those of `KafkaApis` and `ControllerApis`, in their order.

use super::Quota::{ControllerMutation, Exempt, FetchBytes, ProduceBytes, Request};
use super::Served::{ByEngine, ByPython, Not, NotYet};
use super::{Api, Check};

/// First flexible version of an API without flexible versions.
const NEVER: i16 = i16::MAX;

/// One row for each API: key, constant, name, versions, first flexible version; how a broker's and a controller's
/// listener serve it; `local`, or `forwarded` if a broker forwards it to the active controller; `open` if it is
/// allowed before authentication; its checks; its quota.
macro_rules! apis {
    ($($key:literal $constant:ident $name:literal $min:literal..=$max:literal $flexible:tt
       $broker:ident $controller:ident $place:ident $access:ident [$($operation:ident $resource:ident),*] $quota:ident;)*) => {
        $(pub const $constant: i16 = $key;)*

        /// Every API with a supported version, by key. 4 to 7 were removed by Kafka 4.0 and stay reserved.
        pub(super) static APIS: &[Api] = &[$(Api {
            key: $key,
            name: $name,
            version_min: $min,
            version_max: $max,
            flexible_from: $flexible,
            on_broker: $broker,
            on_controller: $controller,
            is_forwarded: apis!(@forwarded $place),
            is_before_authentication: apis!(@open $access),
            checks: &[$(Check::new(super::Operation::$operation, super::Resource::$resource)),*],
            quota: $quota,
        }),*];
    };
    (@forwarded local) => { false };
    (@forwarded forwarded) => { true };
    (@open open) => { true };
    (@open closed) => { false };
}

#[rustfmt::skip]
apis! {
    0 PRODUCE "Produce" 3..=13 9 ByEngine Not local closed [Write TransactionalId, Write Topic] ProduceBytes;
    1 FETCH "Fetch" 4..=18 12 ByEngine ByPython local closed [ClusterAction Cluster, Read Topic] FetchBytes;
    2 LIST_OFFSETS "ListOffsets" 1..=11 6 ByEngine Not local closed [Describe Topic] Request;
    3 METADATA "Metadata" 0..=13 9 ByEngine Not local closed [Describe Topic, Create Cluster, Create Topic] Request;
    8 OFFSET_COMMIT "OffsetCommit" 2..=10 8 ByPython Not local closed [Read Group, Read Topic] Request;
    9 OFFSET_FETCH "OffsetFetch" 1..=10 6 ByPython Not local closed [Describe Group, Describe Topic] Request;
    10 FIND_COORDINATOR "FindCoordinator" 0..=6 3 ByPython Not local closed
        [Describe Group, Describe TransactionalId, ClusterAction Cluster] Request;
    11 JOIN_GROUP "JoinGroup" 0..=9 6 ByPython Not local closed [Read Group] Request;
    12 HEARTBEAT "Heartbeat" 0..=4 4 ByPython Not local closed [Read Group] Request;
    13 LEAVE_GROUP "LeaveGroup" 0..=5 4 ByPython Not local closed [Read Group] Request;
    14 SYNC_GROUP "SyncGroup" 0..=5 4 ByPython Not local closed [Read Group] Request;
    15 DESCRIBE_GROUPS "DescribeGroups" 0..=6 5 ByPython Not local closed [Describe Group] Request;
    16 LIST_GROUPS "ListGroups" 0..=5 3 ByPython Not local closed [Describe Cluster, Describe Group] Request;
    17 SASL_HANDSHAKE "SaslHandshake" 0..=1 NEVER NotYet NotYet local open [] Request;
    18 API_VERSIONS "ApiVersions" 0..=4 3 ByEngine ByEngine local open [] Request;
    19 CREATE_TOPICS "CreateTopics" 2..=7 5 ByPython ByPython forwarded closed
        [Create Cluster, Create Topic, DescribeConfigs Topic] ControllerMutation;
    20 DELETE_TOPICS "DeleteTopics" 1..=6 4 ByPython ByPython forwarded closed
        [Delete Cluster, Describe Topic, Delete Topic] ControllerMutation;
    21 DELETE_RECORDS "DeleteRecords" 0..=2 2 ByPython Not local closed [Delete Topic] Request;
    22 INIT_PRODUCER_ID "InitProducerId" 0..=5 2 ByPython Not local closed
        [Write TransactionalId, TwoPhaseCommit TransactionalId, IdempotentWrite Cluster, Write Topic] Request;
    23 OFFSET_FOR_LEADER_EPOCH "OffsetForLeaderEpoch" 2..=4 4 ByEngine Not local closed
        [ClusterAction Cluster, Describe Topic] Request;
    24 ADD_PARTITIONS_TO_TXN "AddPartitionsToTxn" 0..=5 3 ByPython Not local closed
        [ClusterAction Cluster, Write TransactionalId, Write Topic] Request;
    25 ADD_OFFSETS_TO_TXN "AddOffsetsToTxn" 0..=4 3 ByPython Not local closed [Write TransactionalId, Read Group] Request;
    26 END_TXN "EndTxn" 0..=5 3 ByPython Not local closed [Write TransactionalId] Request;
    27 WRITE_TXN_MARKERS "WriteTxnMarkers" 1..=2 1 ByPython Not local closed
        [Alter Cluster, ClusterAction Cluster] Exempt;
    28 TXN_OFFSET_COMMIT "TxnOffsetCommit" 0..=5 3 ByPython Not local closed
        [Write TransactionalId, Read Group, Read Topic] Request;
    29 DESCRIBE_ACLS "DescribeAcls" 1..=3 2 ByPython ByPython local closed [Describe Cluster] Request;
    30 CREATE_ACLS "CreateAcls" 1..=3 2 NotYet NotYet forwarded closed [Alter Cluster] Request;
    31 DELETE_ACLS "DeleteAcls" 1..=3 2 NotYet NotYet forwarded closed [Alter Cluster] Request;
    32 DESCRIBE_CONFIGS "DescribeConfigs" 1..=4 4 ByPython ByPython local closed
        [DescribeConfigs Cluster, DescribeConfigs Topic, DescribeConfigs Group] Request;
    33 ALTER_CONFIGS "AlterConfigs" 0..=2 2 ByPython ByPython forwarded closed
        [AlterConfigs Cluster, AlterConfigs Topic, AlterConfigs Group] Request;
    34 ALTER_REPLICA_LOG_DIRS "AlterReplicaLogDirs" 1..=2 2 ByPython Not local closed [Alter Cluster] Request;
    35 DESCRIBE_LOG_DIRS "DescribeLogDirs" 1..=5 2 ByPython Not local closed [Describe Cluster] Request;
    36 SASL_AUTHENTICATE "SaslAuthenticate" 0..=2 2 NotYet NotYet local open [] Request;
    37 CREATE_PARTITIONS "CreatePartitions" 0..=3 2 ByPython ByPython forwarded closed [Alter Topic] ControllerMutation;
    38 CREATE_DELEGATION_TOKEN "CreateDelegationToken" 1..=3 2 NotYet NotYet forwarded closed
        [CreateTokens User] Request;
    39 RENEW_DELEGATION_TOKEN "RenewDelegationToken" 1..=2 2 NotYet NotYet forwarded closed [] Request;
    40 EXPIRE_DELEGATION_TOKEN "ExpireDelegationToken" 1..=2 2 NotYet NotYet forwarded closed [] Request;
    41 DESCRIBE_DELEGATION_TOKEN "DescribeDelegationToken" 1..=3 2 NotYet NotYet local closed
        [Describe DelegationToken, DescribeTokens User] Request;
    42 DELETE_GROUPS "DeleteGroups" 0..=2 2 ByPython Not local closed [Delete Group] Request;
    43 ELECT_LEADERS "ElectLeaders" 0..=2 2 ByPython ByPython forwarded closed [Alter Cluster] Request;
    44 INCREMENTAL_ALTER_CONFIGS "IncrementalAlterConfigs" 0..=1 1 ByPython ByPython forwarded closed
        [AlterConfigs Cluster, AlterConfigs Topic, AlterConfigs Group] Request;
    45 ALTER_PARTITION_REASSIGNMENTS "AlterPartitionReassignments" 0..=1 0 ByPython ByPython forwarded closed
        [Alter Cluster] Request;
    46 LIST_PARTITION_REASSIGNMENTS "ListPartitionReassignments" 0..=0 0 ByPython ByPython forwarded closed
        [Describe Cluster] Request;
    47 OFFSET_DELETE "OffsetDelete" 0..=0 NEVER ByPython Not local closed [Delete Group, Read Topic] Request;
    48 DESCRIBE_CLIENT_QUOTAS "DescribeClientQuotas" 0..=1 1 ByPython Not local closed [DescribeConfigs Cluster] Request;
    49 ALTER_CLIENT_QUOTAS "AlterClientQuotas" 0..=1 1 ByPython ByPython forwarded closed [AlterConfigs Cluster] Request;
    50 DESCRIBE_USER_SCRAM_CREDENTIALS "DescribeUserScramCredentials" 0..=0 0 ByPython NotYet local closed
        [Describe Cluster] Request;
    51 ALTER_USER_SCRAM_CREDENTIALS "AlterUserScramCredentials" 0..=0 0 NotYet NotYet forwarded closed
        [Alter Cluster] Request;
    52 VOTE "Vote" 0..=2 0 Not ByPython local closed [ClusterAction Cluster] Exempt;
    53 BEGIN_QUORUM_EPOCH "BeginQuorumEpoch" 0..=1 1 Not ByPython local closed [ClusterAction Cluster] Exempt;
    54 END_QUORUM_EPOCH "EndQuorumEpoch" 0..=1 1 Not ByPython local closed [ClusterAction Cluster] Exempt;
    55 DESCRIBE_QUORUM "DescribeQuorum" 0..=2 0 ByPython ByPython forwarded closed [Describe Cluster] Request;
    56 ALTER_PARTITION "AlterPartition" 2..=3 2 Not ByPython local closed [ClusterAction Cluster] Exempt;
    57 UPDATE_FEATURES "UpdateFeatures" 0..=2 0 ByPython ByPython forwarded closed [Alter Cluster] Request;
    58 ENVELOPE "Envelope" 0..=0 0 Not ByPython local closed [ClusterAction Cluster] Exempt;
    59 FETCH_SNAPSHOT "FetchSnapshot" 0..=1 0 Not ByPython local closed [ClusterAction Cluster] Exempt;
    60 DESCRIBE_CLUSTER "DescribeCluster" 0..=2 0 ByPython ByPython local closed [Alter Cluster] Request;
    61 DESCRIBE_PRODUCERS "DescribeProducers" 0..=0 0 ByPython Not local closed [Read Topic] Request;
    62 BROKER_REGISTRATION "BrokerRegistration" 0..=4 0 Not ByPython local closed [ClusterAction Cluster] Request;
    63 BROKER_HEARTBEAT "BrokerHeartbeat" 0..=2 0 Not ByPython local closed [ClusterAction Cluster] Request;
    64 UNREGISTER_BROKER "UnregisterBroker" 0..=0 0 ByPython ByPython forwarded closed [Alter Cluster] Request;
    65 DESCRIBE_TRANSACTIONS "DescribeTransactions" 0..=0 0 ByPython Not local closed
        [Describe TransactionalId, Describe Topic] Request;
    66 LIST_TRANSACTIONS "ListTransactions" 0..=2 0 ByPython Not local closed [Describe TransactionalId] Request;
    67 ALLOCATE_PRODUCER_IDS "AllocateProducerIds" 0..=0 0 Not ByPython local closed [ClusterAction Cluster] Request;
    68 CONSUMER_GROUP_HEARTBEAT "ConsumerGroupHeartbeat" 0..=1 0 ByPython Not local closed
        [Read Group, Describe Topic] Request;
    69 CONSUMER_GROUP_DESCRIBE "ConsumerGroupDescribe" 0..=1 0 ByPython Not local closed
        [Describe Group, Describe Topic] Request;
    70 CONTROLLER_REGISTRATION "ControllerRegistration" 0..=0 0 Not ByPython local closed
        [ClusterAction Cluster] Request;
    71 GET_TELEMETRY_SUBSCRIPTIONS "GetTelemetrySubscriptions" 0..=0 0 NotYet Not local closed [] Request;
    72 PUSH_TELEMETRY "PushTelemetry" 0..=0 0 NotYet Not local closed [] Request;
    73 ASSIGN_REPLICAS_TO_DIRS "AssignReplicasToDirs" 0..=0 0 Not ByPython local closed [ClusterAction Cluster] Request;
    74 LIST_CONFIG_RESOURCES "ListConfigResources" 0..=1 0 ByPython Not local closed [DescribeConfigs Cluster] Request;
    75 DESCRIBE_TOPIC_PARTITIONS "DescribeTopicPartitions" 0..=0 0 ByEngine Not local closed [Describe Topic] Request;
    76 SHARE_GROUP_HEARTBEAT "ShareGroupHeartbeat" 1..=1 1 ByPython Not local closed [Read Group, Describe Topic] Request;
    77 SHARE_GROUP_DESCRIBE "ShareGroupDescribe" 1..=1 1 ByPython Not local closed
        [Describe Group, Describe Topic] Request;
    78 SHARE_FETCH "ShareFetch" 1..=2 1 ByEngine Not local closed [Read Group, Read Topic] FetchBytes;
    79 SHARE_ACKNOWLEDGE "ShareAcknowledge" 1..=2 1 ByEngine Not local closed [Read Group, Read Topic] Request;
    80 ADD_RAFT_VOTER "AddRaftVoter" 0..=1 0 ByPython ByPython forwarded closed [Alter Cluster] Request;
    81 REMOVE_RAFT_VOTER "RemoveRaftVoter" 0..=0 0 ByPython ByPython forwarded closed [Alter Cluster] Request;
    82 UPDATE_RAFT_VOTER "UpdateRaftVoter" 0..=0 0 Not ByPython local closed [ClusterAction Cluster] Exempt;
    83 INITIALIZE_SHARE_GROUP_STATE "InitializeShareGroupState" 0..=0 0 ByPython Not local closed
        [ClusterAction Cluster] Request;
    84 READ_SHARE_GROUP_STATE "ReadShareGroupState" 0..=0 0 ByPython Not local closed [ClusterAction Cluster] Request;
    85 WRITE_SHARE_GROUP_STATE "WriteShareGroupState" 0..=1 0 ByPython Not local closed [ClusterAction Cluster] Request;
    86 DELETE_SHARE_GROUP_STATE "DeleteShareGroupState" 0..=0 0 ByPython Not local closed [ClusterAction Cluster] Request;
    87 READ_SHARE_GROUP_STATE_SUMMARY "ReadShareGroupStateSummary" 0..=1 0 ByPython Not local closed
        [ClusterAction Cluster] Request;
    88 STREAMS_GROUP_HEARTBEAT "StreamsGroupHeartbeat" 0..=0 0 ByPython Not local closed
        [Read Group, Describe Topic, Create Cluster, Create Topic] Request;
    89 STREAMS_GROUP_DESCRIBE "StreamsGroupDescribe" 0..=0 0 ByPython Not local closed
        [Describe Group, Describe Topic] Request;
    90 DESCRIBE_SHARE_GROUP_OFFSETS "DescribeShareGroupOffsets" 0..=1 0 ByPython Not local closed
        [Describe Group, Describe Topic] Request;
    91 ALTER_SHARE_GROUP_OFFSETS "AlterShareGroupOffsets" 0..=0 0 ByPython Not local closed
        [Read Group, Read Topic] Request;
    92 DELETE_SHARE_GROUP_OFFSETS "DeleteShareGroupOffsets" 0..=0 0 ByPython Not local closed
        [Delete Group, Read Topic] Request;
}
