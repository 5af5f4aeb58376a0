"""Request handlers, one file for each API family. Their dependencies are constructor arguments."""
