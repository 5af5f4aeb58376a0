"""The configuration of a node: its keys and their sources, and the rules that they must obey."""
