"""What a person or a program asks of a cluster over the wire: topics, groups, configs, features, the quorum."""
