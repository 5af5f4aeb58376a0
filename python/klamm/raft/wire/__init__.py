"""The core's messages as Kafka's protocol has them, and back (facts 2.1 to 2.3). Pure; imported by who has peers.

On the wire a message names topics and partitions, of which there may be any number. Here each is held against the one
partition that there is, so that the core never sees another shape.
"""
