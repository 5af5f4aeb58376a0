"""A replicated state machine for any Python program: the state, its commands, and the replicas that agree on them."""
