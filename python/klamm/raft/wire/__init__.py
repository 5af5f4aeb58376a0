"""Converts the core's messages to Kafka's protocol and back (KIP-595). Pure; imported by modules that have peers.

On the wire a message names any number of topics and partitions. Here each is checked against the one metadata
partition, so that the core never sees another shape.
"""
