"""What a node has done since its start: names and numbers that only grow, ready to be exported.

Where Apache Kafka has a metric, the name is its MBean's, and the number what the bean calls Count, or its total:

    kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec      records appended
    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec         bytes of their batches
    kafka.network:type=RequestMetrics,name=RequestsPerSec,request=R,version=V
                                                                    requests taken, of each API and version that had any
    kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=R,error=E
                                                                    error codes, and NONE, in the engine's own answers
                                                                    to requests that were measured
    kafka.server:type=socket-server-metrics,name=N                  connection-creation-total, incoming-byte-total,
                                                                    outgoing-byte-total
    kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs         flushes of a partition's log
    kafka.server:type=group-coordinator-metrics,name=N              group-completed-rebalance-count,
                                                                    offset-commit-count, offset-deletion-count,
                                                                    offset-expiration-count

And klamm's own:

    klamm.network:type=Connections,name=N   Refused (their address had all it may have), ClosedForFault
    klamm.log:type=Log,name=N               Appends, FlushTimeUs, Rolls, DeletedSegments, DeletedBytes; Recoveries (logs
                                            opened after an unclean stop), RecoveredBytes (read then), TruncatedBytes
    klamm.log:type=LogCleaner,name=N        Rounds, ReadBytes, KeptBytes
    klamm.coordinator:type=Groups,name=N    Loads, LoadTimeMs and LoadFailures of partitions; Faults (each has its shard
                                            loaded again); Appends, AppendedRecords, AppendFailures
    klamm.raft:type=MetadataLog,name=N      Records, Bytes, Appends, Flushes, FlushTimeUs, Rolls, DeletedSegments,
                                            DeletedBytes

Each number is right; read together while work goes on they may be a moment apart.
"""

from __future__ import annotations

from klamm._engine import Engine, MetadataLog


def counters(engine: Engine, metadata_log: MetadataLog) -> dict[str, int]:
    """Those of the engine; a broker adds those of its groups. It takes no lock that work waits for."""
    return engine.counters() | metadata_log.counters()
