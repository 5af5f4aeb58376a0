"""What is wrong with a quorum: facts are collected at the edge, findings follow from them alone."""
