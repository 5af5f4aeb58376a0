"""Share groups (KIP-932): records 10 to 15 of `__consumer_offsets`, their members, and where their states are."""
