"""Request handlers, a file per API family. Each takes what it needs from the node as constructor arguments."""
