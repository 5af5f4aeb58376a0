"""The library's own I/O: directory, network, clock, threads. The rest of `klamm.raft.library` has none."""
