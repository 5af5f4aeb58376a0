"""Protobuf: `.proto` files, Spark types of their messages, and programs that read them."""
