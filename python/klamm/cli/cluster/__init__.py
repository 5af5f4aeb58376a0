"""`klamm cluster`: a cluster on this machine, each node in a process of its own."""
