"""The files of a node's directories besides the logs: meta.properties, the bootstrap records, and their formatting."""
