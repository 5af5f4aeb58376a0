"""Avro and Protobuf as columns: schemas are read and resolved here, bytes are decoded by the engine.

The driver determines the type of a column when it plans a query (`planning`): one reader's schema, pinned in the
options that tasks receive. A task decodes values of any number of writers' schemas (`decoder`): it resolves each
against the reader's schema into a program, which the engine executes.
"""
