"""Kafka Streams and Kafka Connect of Apache Kafka 4.3.1 on three brokers of klamm, which are killed meanwhile."""
