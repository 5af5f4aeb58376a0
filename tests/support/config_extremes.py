"""Starts a node for each given key and value, and prints the outcome as a line of JSON, flushed at once.

It runs in its own process, because a value that is accepted by mistake may end or block the process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition

import klamm
from klamm.config.node_config import NodeConfigError

WAIT_S = 20.0


def serve(cluster: klamm.Cluster) -> str:
    """What fails of a produce and a fetch; empty when both work."""
    cluster.create_topic("t")
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    errors: list[object] = []
    producer = Producer(settings | {"linger.ms": 0, "message.timeout.ms": int(WAIT_S * 1000)})
    producer.produce("t", b"x", on_delivery=lambda error, message: errors.append(error))
    if producer.flush(WAIT_S) or errors[0] is not None:
        return f"produce: {errors}"
    consumer = Consumer(settings | {"group.id": "g", "enable.auto.commit": False, "fetch.wait.max.ms": 10})
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        message = consumer.poll(WAIT_S)
        return "" if message is not None and message.value() == b"x" else f"fetch: {message and message.error()}"
    finally:
        consumer.close()


def outcome(config: dict[str, str]) -> str:
    """ "served", "refused: ..." with the message for the operator, or "failed: ..."."""
    try:
        with klamm.Cluster(config=config) as cluster:
            missing = serve(cluster)
    except NodeConfigError as error:
        left = {name: value for name, value in config.items() if name not in str(error)}
        return outcome(left) if 0 < len(left) < len(config) else f"refused: {error}"
    except Exception as error:  # the test shall see any exception
        return f"failed: {type(error).__name__}: {error}"
    return f"failed: {missing}" if missing else "served"


def main(cases: Sequence[dict[str, str]]) -> None:
    """Try each configuration."""
    for config in cases:
        print(json.dumps(outcome(config)), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
