"""Protobuf: `.proto` files, what their messages are in Spark, and programs that read them."""
