"""The share coordinator (KIP-932): one shard per partition of `__share_group_state`."""
