"""`Cluster`: nodes inside this process, for tests, notebooks and tools."""
