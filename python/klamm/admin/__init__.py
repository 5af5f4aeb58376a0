"""Administration of a cluster over the wire: topics, groups, configs, features, the quorum."""
