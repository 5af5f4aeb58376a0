"""Avro and Protobuf as columns: schemas are read and resolved here, bytes are decoded by the engine.

What a value becomes is fixed in the driver when a query is planned (`planning`): one reader's schema, pinned in the
options that the tasks get. A task decodes values of any number of writers' schemas (`decoder`): for each it makes a
program of the writer's schema resolved against the reader's, which the engine obeys.
"""
