"""Parts of a node in the shapes that handlers and coordinators ask for."""
