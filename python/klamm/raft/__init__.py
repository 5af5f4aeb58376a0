"""The quorum: election and replication policy, a driver for it, and the library API. Knows no topics."""
