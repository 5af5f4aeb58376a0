"""The coordinator runtime, generic over its shards, as Apache Kafka's `CoordinatorRuntime`.

A shard is the state machine of one partition of an internal topic (`shard.Shard`). The runtime (`driver`) hosts the
shards of the partitions that are led here: it loads them, writes what they decide to the log, answers once that is
committed, rolls them back when a write fails, runs their timers, and loads a shard that failed again.
"""
