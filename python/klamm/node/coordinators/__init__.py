"""The coordinators of a node, each created when a request or a partition of its internal topic first needs it."""
