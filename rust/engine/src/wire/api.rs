//! Which APIs there are, at which versions, on which kind of listener (facts 12).

/// What a listener is for (the `listeners` of a message's schema).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListenerKind {
    Broker,
    Controller,
}

/// One API as Apache Kafka 4.3 serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    pub key: i16,
    pub name: &'static str,
    /// Lowest and highest version that is accepted; unstable versions are left out.
    pub version_min: i16,
    pub version_max: i16,
    /// First version with tagged fields (KIP-482).
    flexible_from: i16,
    listeners: u8,
}

pub const PRODUCE: i16 = 0;
pub const FETCH: i16 = 1;
pub const LIST_OFFSETS: i16 = 2;
pub const METADATA: i16 = 3;
pub const OFFSET_COMMIT: i16 = 8;
pub const HEARTBEAT: i16 = 12;
pub const API_VERSIONS: i16 = 18;
pub const OFFSET_FOR_LEADER_EPOCH: i16 = 23;
pub const VOTE: i16 = 52;
pub const BEGIN_QUORUM_EPOCH: i16 = 53;
pub const END_QUORUM_EPOCH: i16 = 54;
pub const FETCH_SNAPSHOT: i16 = 59;
pub const BROKER_HEARTBEAT: i16 = 63;
pub const CONSUMER_GROUP_HEARTBEAT: i16 = 68;
pub const DESCRIBE_TOPIC_PARTITIONS: i16 = 75;

const NEVER: i16 = i16::MAX;
const BROKER: u8 = 1;
const CONTROLLER: u8 = 2;
const BOTH: u8 = BROKER | CONTROLLER;

const fn api(
    key: i16,
    name: &'static str,
    version_min: i16,
    version_max: i16,
    flexible_from: i16,
    listeners: u8,
) -> Api {
    Api { key, name, version_min, version_max, flexible_from, listeners }
}

/// Every API with a version left, by key. 4 to 7 were removed by Kafka 4.0 and stay reserved.
#[rustfmt::skip]
const APIS: [Api; 89] = [
    api(0, "Produce", 3, 13, 9, BROKER),
    api(1, "Fetch", 4, 18, 12, BOTH),
    api(2, "ListOffsets", 1, 11, 6, BROKER),
    api(3, "Metadata", 0, 13, 9, BROKER),
    api(8, "OffsetCommit", 2, 10, 8, BROKER),
    api(9, "OffsetFetch", 1, 10, 6, BROKER),
    api(10, "FindCoordinator", 0, 6, 3, BROKER),
    api(11, "JoinGroup", 0, 9, 6, BROKER),
    api(12, "Heartbeat", 0, 4, 4, BROKER),
    api(13, "LeaveGroup", 0, 5, 4, BROKER),
    api(14, "SyncGroup", 0, 5, 4, BROKER),
    api(15, "DescribeGroups", 0, 6, 5, BROKER),
    api(16, "ListGroups", 0, 5, 3, BROKER),
    api(17, "SaslHandshake", 0, 1, NEVER, BOTH),
    api(18, "ApiVersions", 0, 4, 3, BOTH),
    api(19, "CreateTopics", 2, 7, 5, BOTH),
    api(20, "DeleteTopics", 1, 6, 4, BOTH),
    api(21, "DeleteRecords", 0, 2, 2, BROKER),
    api(22, "InitProducerId", 0, 5, 2, BROKER),
    api(23, "OffsetForLeaderEpoch", 2, 4, 4, BROKER),
    api(24, "AddPartitionsToTxn", 0, 5, 3, BROKER),
    api(25, "AddOffsetsToTxn", 0, 4, 3, BROKER),
    api(26, "EndTxn", 0, 5, 3, BROKER),
    api(27, "WriteTxnMarkers", 1, 2, 1, BROKER),
    api(28, "TxnOffsetCommit", 0, 5, 3, BROKER),
    api(29, "DescribeAcls", 1, 3, 2, BOTH),
    api(30, "CreateAcls", 1, 3, 2, BOTH),
    api(31, "DeleteAcls", 1, 3, 2, BOTH),
    api(32, "DescribeConfigs", 1, 4, 4, BOTH),
    api(33, "AlterConfigs", 0, 2, 2, BOTH),
    api(34, "AlterReplicaLogDirs", 1, 2, 2, BROKER),
    api(35, "DescribeLogDirs", 1, 5, 2, BROKER),
    api(36, "SaslAuthenticate", 0, 2, 2, BOTH),
    api(37, "CreatePartitions", 0, 3, 2, BOTH),
    api(38, "CreateDelegationToken", 1, 3, 2, BOTH),
    api(39, "RenewDelegationToken", 1, 2, 2, BOTH),
    api(40, "ExpireDelegationToken", 1, 2, 2, BOTH),
    api(41, "DescribeDelegationToken", 1, 3, 2, BOTH),
    api(42, "DeleteGroups", 0, 2, 2, BROKER),
    api(43, "ElectLeaders", 0, 2, 2, BOTH),
    api(44, "IncrementalAlterConfigs", 0, 1, 1, BOTH),
    api(45, "AlterPartitionReassignments", 0, 1, 0, BOTH),
    api(46, "ListPartitionReassignments", 0, 0, 0, BOTH),
    api(47, "OffsetDelete", 0, 0, NEVER, BROKER),
    api(48, "DescribeClientQuotas", 0, 1, 1, BROKER),
    api(49, "AlterClientQuotas", 0, 1, 1, BOTH),
    api(50, "DescribeUserScramCredentials", 0, 0, 0, BOTH),
    api(51, "AlterUserScramCredentials", 0, 0, 0, BOTH),
    api(52, "Vote", 0, 2, 0, CONTROLLER),
    api(53, "BeginQuorumEpoch", 0, 1, 1, CONTROLLER),
    api(54, "EndQuorumEpoch", 0, 1, 1, CONTROLLER),
    api(55, "DescribeQuorum", 0, 2, 0, BOTH),
    api(56, "AlterPartition", 2, 3, 2, CONTROLLER),
    api(57, "UpdateFeatures", 0, 2, 0, BOTH),
    api(58, "Envelope", 0, 0, 0, CONTROLLER),
    api(59, "FetchSnapshot", 0, 1, 0, CONTROLLER),
    api(60, "DescribeCluster", 0, 2, 0, BOTH),
    api(61, "DescribeProducers", 0, 0, 0, BROKER),
    api(62, "BrokerRegistration", 0, 4, 0, CONTROLLER),
    api(63, "BrokerHeartbeat", 0, 2, 0, CONTROLLER),
    api(64, "UnregisterBroker", 0, 0, 0, BOTH),
    api(65, "DescribeTransactions", 0, 0, 0, BROKER),
    api(66, "ListTransactions", 0, 2, 0, BROKER),
    api(67, "AllocateProducerIds", 0, 0, 0, CONTROLLER),
    api(68, "ConsumerGroupHeartbeat", 0, 1, 0, BROKER),
    api(69, "ConsumerGroupDescribe", 0, 1, 0, BROKER),
    api(70, "ControllerRegistration", 0, 0, 0, CONTROLLER),
    api(71, "GetTelemetrySubscriptions", 0, 0, 0, BROKER),
    api(72, "PushTelemetry", 0, 0, 0, BROKER),
    api(73, "AssignReplicasToDirs", 0, 0, 0, CONTROLLER),
    api(74, "ListConfigResources", 0, 1, 0, BROKER),
    api(75, "DescribeTopicPartitions", 0, 0, 0, BROKER),
    api(76, "ShareGroupHeartbeat", 1, 1, 1, BROKER),
    api(77, "ShareGroupDescribe", 1, 1, 1, BROKER),
    api(78, "ShareFetch", 1, 2, 1, BROKER),
    api(79, "ShareAcknowledge", 1, 2, 1, BROKER),
    api(80, "AddRaftVoter", 0, 1, 0, BOTH),
    api(81, "RemoveRaftVoter", 0, 0, 0, BOTH),
    api(82, "UpdateRaftVoter", 0, 0, 0, CONTROLLER),
    api(83, "InitializeShareGroupState", 0, 0, 0, BROKER),
    api(84, "ReadShareGroupState", 0, 0, 0, BROKER),
    api(85, "WriteShareGroupState", 0, 1, 0, BROKER),
    api(86, "DeleteShareGroupState", 0, 0, 0, BROKER),
    api(87, "ReadShareGroupStateSummary", 0, 1, 0, BROKER),
    api(88, "StreamsGroupHeartbeat", 0, 0, 0, BROKER),
    api(89, "StreamsGroupDescribe", 0, 0, 0, BROKER),
    api(90, "DescribeShareGroupOffsets", 0, 1, 0, BROKER),
    api(91, "AlterShareGroupOffsets", 0, 0, 0, BROKER),
    api(92, "DeleteShareGroupOffsets", 0, 0, 0, BROKER),
];

impl Api {
    /// The API of a key; `None` for one that Kafka 4.3 does not know or does not serve any more.
    pub fn of(key: i16) -> Option<&'static Api> {
        APIS.binary_search_by_key(&key, |api| api.key).ok().map(|at| &APIS[at])
    }

    /// All APIs by key.
    pub fn all() -> &'static [Api] {
        &APIS
    }

    /// Whether `version` writes lengths compactly and has tagged fields.
    #[inline]
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    /// Whether a listener of this kind may serve it.
    pub fn is_for(&self, kind: ListenerKind) -> bool {
        let bit = match kind {
            ListenerKind::Broker => BROKER,
            ListenerKind::Controller => CONTROLLER,
        };
        self.listeners & bit != 0
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
        let count = |kind| APIS.iter().filter(|api| api.is_for(kind)).count();
        assert_eq!(count(ListenerKind::Broker), 77);
        assert_eq!(count(ListenerKind::Controller), 41);
    }
}
