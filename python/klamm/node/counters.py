"""A node's counters since its start, by name, ready to be exported.

Where Apache Kafka has a metric, the name is its MBean's and the value is its Count or total:

    kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec      records appended
    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec         bytes of their batches
    kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec        bytes of batches that consumers fetched
    kafka.server:type=BrokerTopicMetrics,name=N                     ReplicationBytesInPerSec, ReplicationBytesOutPerSec
    kafka.server:type=ReplicaManager,name=N                         IsrShrinksPerSec, IsrExpandsPerSec,
                                                                    FailedIsrUpdatesPerSec
    kafka.server:type=AlterLogDirsReplication,name=byte-rate        bytes of batches that moves between log directories
                                                                    have copied
    kafka.server:type=LeaderReplication,name=byte-rate              bytes of throttled replicas that were sent
    kafka.server:type=FollowerReplication,name=byte-rate            bytes of throttled replicas that were fetched
    kafka.network:type=RequestMetrics,name=RequestsPerSec,request=R,version=V
                                                                    requests received, per API and version
    kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=R,error=E
                                                                    error codes, and NONE, in responses to measured
                                                                    requests
    kafka.server:type=socket-server-metrics,name=N                  connection-creation-total, incoming-byte-total,
                                                                    outgoing-byte-total
    kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs         flushes of a partition's log
    kafka.server:type=group-coordinator-metrics,name=N              group-completed-rebalance-count, and
                                                                    consumer-group-, share-group- and
                                                                    streams-group-rebalance-count; offset-commit-count,
                                                                    offset-deletion-count, offset-expiration-count
    kafka.server:type=share-coordinator-metrics,name=write-total
                                                                    records of states of share groups
    kafka.server:type=AddPartitionsToTxnManager,name=N              VerificationTimeMs: transactions that were verified;
                                                                    VerificationFailureRate: refused partitions
    kafka.server:type=ShareGroupMetrics,name=RecordAcknowledgementsPerSec,ackType=T
                                                                    records of share groups, by type of acknowledgement
    kafka.server:type=ShareGroupMetrics,name=PartitionLoadTimeMs    share partitions that were loaded
    kafka.server:type=ShareGroupMetrics,name=RequestTopicPartitionsFetchRatio,group=G
                                                                    answered share fetches; the ratio is that of share
                                                                    partitions that could be read
    kafka.server:type=SharePartitionMetrics,name=AcquisitionLockTimeoutPerSec
                                                                    records whose lock has ended, of all partitions
    kafka.server:type=DelayedShareFetchMetrics,name=ExpiresPerSec   share fetches that waited for as long as they may
    kafka.server:type=ShareSessionCache,name=ShareSessionEvictionsPerSec
                                                                    share sessions that ended with their connection
    kafka.server:type=BrokerTopicMetrics,name=N                     TotalShareFetchRequestsPerSec,
                                                                    FailedShareFetchRequestsPerSec and the same of
                                                                    ShareAcknowledgementRequests

Klamm's own:

    klamm.network:type=Connections,name=N   Refused (the address had its maximum of connections), ClosedForFault
    klamm.log:type=Log,name=N               Appends, FlushTimeUs, Rolls, DeletedSegments, DeletedBytes; Recoveries (logs
                                            opened after an unclean stop), RecoveredBytes (read by them), TruncatedBytes
    klamm.log:type=LogCleaner,name=N        Rounds, ReadBytes, KeptBytes
    klamm.coordinator:type=T,name=N         of Groups, Transactions and ShareStates: Loads, LoadTimeMs and
                                            LoadFailures of partitions; Faults (after each, its shard is reloaded);
                                            Appends, AppendedRecords, AppendFailures
    klamm.share:type=ShareGroupMetrics,name=PartitionLoadTimeMsTotal
                                            the time that loading share partitions took
    klamm.share:type=ShareGroupMetrics,name=RequestTopicPartitionsFetchRatioTotal,group=G
                                            the sum of these ratios, in percent
    klamm.raft:type=MetadataLog,name=N      Records, Bytes, Appends, Flushes, FlushTimeUs, Rolls, DeletedSegments,
                                            DeletedBytes

Each value is exact, but values of one reading may be from slightly different moments.

`Engine.gauges` are numbers of the moment:

    kafka.server:type=ReplicaManager,name=N PartitionCount, LeaderCount, OfflineReplicaCount; of the partitions that
                                            the broker leads UnderReplicatedPartitions, UnderMinIsrPartitionCount,
                                            AtMinIsrPartitionCount, ReassigningPartitions,
                                            PartitionsWithLateTransactionsCount; ProducerIdCount, of all partitions
    kafka.cluster:type=Partition,name=LastStableOffsetLag,topic=T,partition=P
                                            offsets below the high watermark of an open log that a read_committed
                                            consumer does not get yet
    kafka.server:type=ReplicaFetcherManager,name=N,clientId=Replica
                                            MaxLag, MinFetchRate, FailedPartitionsCount, DeadThreadCount
    kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=C,topic=T,partition=P
                                            records below the leader's high watermark that a follower lacks; C is
                                            ReplicaFetcherThread-, the fetcher and the leader
    kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=N
                                            UnknownDestinationQueueSize: partitions whose marker waits for a leader;
                                            LogAppendRetryQueueSize: ends of transactions that are written again
    kafka.server:type=group-coordinator-metrics,name=group-count,protocol=P
                                            groups that the broker coordinates; P is classic, consumer, share or streams
    kafka.server:type=group-coordinator-metrics,name=N,state=S
                                            consumer-group-count, share-group-count, streams-group-count
    kafka.server:type=C,name=num-partitions,state=S
                                            partitions that the coordinator leads: C is group-coordinator-metrics or
                                            share-coordinator-metrics, S is loading, active or failed
    kafka.coordinator.group:type=GroupMetadataManager,name=N
                                            NumOffsets (committed), NumGroups (classic ones), and of these
                                            NumGroupsEmpty, NumGroupsPreparingRebalance, NumGroupsCompletingRebalance,
                                            NumGroupsStable, NumGroupsDead
    kafka.server:type=share-coordinator-metrics,name=last-pruned-offset,topic=T,partition=P
                                            of each partition of __share_group_state that was pruned
    kafka.server:type=ShareSessionCache,name=N
                                            ShareSessionsCount, SharePartitionsCount (partitions of sessions)
    kafka.server:type=SharePartitionMetrics,name=N,group=G,topic=T,partition=P
                                            InFlightMessageCount, InFlightBatchCount
    kafka.log:type=LogManager,name=N        OfflineLogDirectoryCount, CordonedLogDirectoryCount
    kafka.log:type=LogManager,name=N,logDirectory="PATH"
                                            1 or 0 for LogDirectoryOffline and LogDirectoryCordoned
"""

from __future__ import annotations

from klamm._engine.node import Engine
from klamm._engine.quorum import MetadataLog


def counters(engine: Engine, metadata_log: MetadataLog) -> dict[str, int]:
    """The counters of the engine; a broker adds those of its groups. Takes no lock on which requests wait."""
    return engine.counters() | metadata_log.counters()
