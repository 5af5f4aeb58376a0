"""The transaction coordinator (KIP-98, KIP-360, KIP-890): one shard per partition of `__transaction_state`."""
