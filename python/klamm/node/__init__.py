"""A node, assembled from the parts of its roles."""
