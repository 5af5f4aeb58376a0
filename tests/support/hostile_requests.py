"""Valid requests of transactions, groups of all kinds and share states, which tests mutate."""

from __future__ import annotations

import base64
from typing import Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from tests.support.hostile_values import EPOCH, MEMBER, NAME, PRODUCER, TOPIC, TOPIC_ID, Broker, Request, encoded

SETTINGS: Final = {
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
INIT: Final = Request(
    ApiKey.INIT_PRODUCER_ID,
    5,
    {"transactional_id": NAME, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1},
)
PAIR: Final = {"producer_id": PRODUCER, "producer_epoch": EPOCH}
ADD: Final = {"transactional_id": NAME, **PAIR, "topics": [{"name": TOPIC, "partitions": [0, 1]}]}
OFFSET: Final = {
    "partition_index": 0,
    "committed_offset": 7,
    "committed_leader_epoch": -1,
    "committed_metadata": "m",
}
CONSUMER: Final = Request(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    1,
    {
        "group_id": NAME,
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [TOPIC],
        "subscribed_topic_regex": None,
        "server_assignor": "uniform",
        "topic_partitions": [],
    },
)
CLASSIC: Final = Request(
    ApiKey.JOIN_GROUP,
    3,
    {
        "group_id": NAME,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    },
)
SHARE: Final = Request(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    1,
    {"group_id": NAME, "member_id": "m", "member_epoch": 0, "rack_id": None, "subscribed_topic_names": [TOPIC]},
)
STREAMS: Final = Request(
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    0,
    {
        "group_id": NAME,
        "member_id": "m",
        "member_epoch": 0,
        "endpoint_information_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 60_000,
        "topology": {
            "epoch": 0,
            "subtopologies": [
                {
                    "subtopology_id": "0",
                    "source_topics": [TOPIC],
                    "source_topic_regex": [],
                    "state_changelog_topics": [
                        {"name": f"{NAME}-log", "partitions": 0, "replication_factor": 1, "topic_configs": []}
                    ],
                    "repartition_sink_topics": [f"{NAME}-through"],
                    "repartition_source_topics": [],
                    "copartition_groups": [
                        {"source_topics": [0], "source_topic_regex": [], "repartition_source_topics": []}
                    ],
                },
                {
                    "subtopology_id": "1",
                    "source_topics": [],
                    "source_topic_regex": [],
                    "state_changelog_topics": [],
                    "repartition_sink_topics": [],
                    "repartition_source_topics": [
                        {"name": f"{NAME}-through", "partitions": 0, "replication_factor": 1, "topic_configs": []}
                    ],
                    "copartition_groups": [],
                },
            ],
        },
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "p",
        "user_endpoint": {"host": "h", "port": 1},
        "client_tags": [{"key": "k", "value": "v"}],
        "task_offsets": None,
        "task_end_offsets": None,
        "shutdown_application": False,
    },
)
BATCH: Final = {"first_offset": 0, "last_offset": 3, "delivery_state": 2, "delivery_count": 1}
STATE: Final = {
    "partition": 0,
    "state_epoch": 1,
    "leader_epoch": 0,
    "start_offset": 0,
    "delivery_complete_count": 0,
    "state_batches": [BATCH],
}
INITIAL_STATE: Final = Request(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    0,
    {
        "group_id": NAME,
        "topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 0, "state_epoch": 1, "start_offset": 0}]}],
    },
)


def state_of_share(key: ApiKey, version: int, partition: dict[str, object]) -> Request:
    """A request to the share coordinator about an existing state."""
    fields = {"group_id": NAME, "topics": [{"topic_id": TOPIC_ID, "partitions": [partition]}]}
    return Request(key, version, fields, (INITIAL_STATE,))


def next_beat(first: Request, **changes: object) -> Request:
    """The next heartbeat of a member that has joined."""
    return first._replace(fields=first.fields | {"member_epoch": EPOCH} | changes, before=(first,))


ACKNOWLEDGED: Final = {"first_offset": 0, "last_offset": 1, "acknowledge_types": [1]}


FROM_THE_BEGINNING: Final = Request(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    0,
    {
        "group_id": NAME,
        "topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
    },
)


def share_fetch(epoch: int, *acknowledged: dict[str, object], max_wait_ms: int = 0) -> Request:
    """A fetch of a share consumer from the beginning of a partition."""
    fields = {
        "group_id": NAME,
        "member_id": "m",
        "share_session_epoch": epoch,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1 if max_wait_ms else 0,
        "max_bytes": 1 << 20,
        "max_records": 10,
        "batch_size": 10,
        "share_acquire_mode": 0,
        "is_renew_ack": False,
        "topics": [
            {
                "topic_id": TOPIC_ID,
                "partitions": [{"partition_index": 0, "acknowledgement_batches": list(acknowledged)}],
            }
        ],
        "forgotten_topics_data": [],
    }
    return Request(ApiKey.SHARE_FETCH, 2, fields, (FROM_THE_BEGINNING,))


SHARE_FETCHES: Final = (
    share_fetch(0),
    share_fetch(1),
    share_fetch(2, ACKNOWLEDGED),
    share_fetch(-1, ACKNOWLEDGED),
)
"""Their responses depend on the time that reads take."""


REQUESTS: Final = {
    "a transactional id": INIT,
    "a pair": INIT._replace(fields=INIT.fields | PAIR, before=(INIT,)),
    "added partitions": Request(
        ApiKey.ADD_PARTITIONS_TO_TXN, 3, {f"v3_and_below_{name}": value for name, value in ADD.items()}, (INIT,)
    ),
    "a broker's partitions": Request(
        ApiKey.ADD_PARTITIONS_TO_TXN, 5, {"transactions": [ADD | {"verify_only": False}]}, (INIT,)
    ),
    "added offsets": Request(
        ApiKey.ADD_OFFSETS_TO_TXN, 4, {"transactional_id": NAME, **PAIR, "group_id": NAME}, (INIT,)
    ),
    "an end": Request(ApiKey.END_TXN, 5, {"transactional_id": NAME, **PAIR, "committed": True}, (INIT,)),
    "an end of version 1": Request(ApiKey.END_TXN, 4, {"transactional_id": NAME, **PAIR, "committed": True}, (INIT,)),
    "offsets in a transaction": Request(
        ApiKey.TXN_OFFSET_COMMIT,
        5,
        {
            "transactional_id": NAME,
            "group_id": NAME,
            **PAIR,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": [OFFSET]}],
        },
        (INIT,),
    ),
    "described transactions": Request(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [NAME, "none"]}, (INIT,)),
    "listed transactions": Request(
        ApiKey.LIST_TRANSACTIONS,
        2,
        {
            "state_filters": ["Ongoing"],
            "producer_id_filters": [1],
            "duration_filter": 1,
            "transactional_id_pattern": "x.*",
        },
    ),
    "a consumer joins": CONSUMER,
    "a consumer stays": next_beat(CONSUMER),
    "described consumers": Request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [NAME, "none"]}, (CONSUMER,)),
    "a share consumer joins": SHARE,
    "a share consumer stays": next_beat(SHARE),
    "described share groups": Request(ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [NAME, "none"]}, (SHARE,)),
    "a streams member joins": STREAMS,
    "a streams member stays": next_beat(STREAMS, topology=None),
    "described streams groups": Request(ApiKey.STREAMS_GROUP_DESCRIBE, 0, {"group_ids": [NAME, "none"]}, (STREAMS,)),
    "a first state": INITIAL_STATE,
    "a state": state_of_share(ApiKey.WRITE_SHARE_GROUP_STATE, 1, STATE),
    "a state that is read": state_of_share(ApiKey.READ_SHARE_GROUP_STATE, 0, {"partition": 0, "leader_epoch": 0}),
    "a summary": state_of_share(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, {"partition": 0, "leader_epoch": 0}),
    "a deleted state": state_of_share(ApiKey.DELETE_SHARE_GROUP_STATE, 0, {"partition": 0}),
    "offsets of a share group": Request(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        {"groups": [{"group_id": NAME, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]},
    ),
    "altered offsets of a share group": Request(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        {
            "group_id": NAME,
            "topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
        },
    ),
    "deleted offsets of a share group": Request(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": NAME, "topics": [{"topic_name": TOPIC}]}
    ),
    "committed offsets": Request(
        ApiKey.OFFSET_COMMIT,
        10,
        {
            "group_id": NAME,
            "generation_id_or_member_epoch": EPOCH,
            "member_id": "m",
            "group_instance_id": None,
            "topics": [{"topic_id": TOPIC_ID, "partitions": [OFFSET]}],
        },
        (CONSUMER,),
    ),
    "committed offsets by name": Request(
        ApiKey.OFFSET_COMMIT,
        9,
        {
            "group_id": NAME,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": [OFFSET]}],
        },
    ),
    "fetched offsets": Request(
        ApiKey.OFFSET_FETCH,
        10,
        {
            "groups": [
                {
                    "group_id": NAME,
                    "member_id": "m",
                    "member_epoch": EPOCH,
                    "topics": [{"topic_id": TOPIC_ID, "partition_indexes": [0, 1]}],
                }
            ],
            "require_stable": True,
        },
        (CONSUMER,),
    ),
    "deleted offsets": Request(
        ApiKey.OFFSET_DELETE,
        0,
        {"group_id": NAME, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
        (CONSUMER,),
    ),
    "deleted groups": Request(ApiKey.DELETE_GROUPS, 2, {"groups_names": [NAME, "none"]}, (CONSUMER,)),
    "deleted share groups": Request(ApiKey.DELETE_GROUPS, 2, {"groups_names": [NAME, "none"]}, (SHARE,)),
    "described groups": Request(
        ApiKey.DESCRIBE_GROUPS, 6, {"groups": [NAME, "none"], "include_authorized_operations": False}, (CONSUMER,)
    ),
    "listed groups": Request(ApiKey.LIST_GROUPS, 5, {"states_filter": ["Stable"], "types_filter": ["consumer"]}),
    "a found coordinator": Request(ApiKey.FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": [NAME]}),
    "a classic member joins": CLASSIC,
    "a classic member joins again": CLASSIC._replace(
        version=9,
        fields=CLASSIC.fields | {"member_id": MEMBER, "group_instance_id": None, "reason": None},
        before=(CLASSIC,),
    ),
    "a classic member syncs": Request(
        ApiKey.SYNC_GROUP,
        5,
        {
            "group_id": NAME,
            "generation_id": EPOCH,
            "member_id": MEMBER,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": MEMBER, "assignment": b"a"}],
        },
        (CLASSIC,),
    ),
    "a classic member stays": Request(
        ApiKey.HEARTBEAT,
        4,
        {"group_id": NAME, "generation_id": EPOCH, "member_id": MEMBER, "group_instance_id": None},
        (CLASSIC,),
    ),
    "a classic member leaves": Request(
        ApiKey.LEAVE_GROUP,
        5,
        {"group_id": NAME, "members": [{"member_id": MEMBER, "group_instance_id": None, "reason": "r"}]},
        (CLASSIC,),
    ),
    "markers": Request(
        ApiKey.WRITE_TXN_MARKERS,
        2,
        {
            "markers": [
                {
                    **PAIR,
                    "transaction_result": True,
                    "coordinator_epoch": 0,
                    "topics": [{"name": TOPIC, "partition_indexes": [0, 1]}],
                    "transaction_version": 0,
                }
            ]
        },
        (INIT,),
    ),
    "described producers": Request(
        ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": TOPIC, "partition_indexes": [0, 1]}]}
    ),
    "acknowledgements": Request(
        ApiKey.SHARE_ACKNOWLEDGE,
        2,
        {
            "group_id": NAME,
            "member_id": "m",
            "share_session_epoch": 1,
            "is_renew_ack": False,
            "topics": [
                {
                    "topic_id": TOPIC_ID,
                    "partitions": [{"partition_index": 0, "acknowledgement_batches": [ACKNOWLEDGED]}],
                }
            ],
        },
        (FROM_THE_BEGINNING, share_fetch(0, max_wait_ms=5_000)),
    ),
}


def prepared(broker: Broker) -> bytes:
    """Find all coordinators, which creates their topics. Returns the id of the topic."""
    asked = Request(ApiKey.METADATA, 12, {"topics": [{"name": TOPIC, "topic_id": None}]})
    described = broker.patiently(asked.key, asked.version, encoded(asked, asked.fields))
    topic_id: bytes = described.topics[0].topic_id.bytes
    share_key = f"g:{base64.urlsafe_b64encode(topic_id).decode().rstrip('=')}:0"
    for key_type, key in enumerate(("g", "g", share_key)):
        find = Request(ApiKey.FIND_COORDINATOR, 6, {"key_type": key_type, "coordinator_keys": [key]})
        found = broker.patiently(find.key, find.version, encoded(find, find.fields))
        assert found.coordinators[0].error_code is ErrorCode.NONE, found
    return topic_id
