"""The coordinator runtime, generic over its shards, as Apache Kafka's `CoordinatorRuntime`.

A shard is the state machine of one partition of an internal topic (`shard.Shard`). The runtime (`driver`) hosts the
shards of the partitions that this node leads. It loads them, appends the records that they write, sends the responses
after the records are committed, rolls a shard back when an append fails, runs the timers, and reloads a shard that
failed.
"""
