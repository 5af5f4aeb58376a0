"""DeleteRecords: the response."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.request_contexts import request_context

from klamm.broker.handlers.records import RecordHandlers
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.kio_classes import request_class

VERSION = 2


class Partitions:
    """This replica deletes up to offset 8; the others reach only offset 5 in time."""

    async def delete_records(self, topic: str, partition: int, offset: int, timeout_ms: int) -> tuple[int, bool]:
        assert (topic, timeout_ms) == ("t", 700)
        if offset > 8:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "")
        return min(offset, 5), offset <= 5

    async def producers(self, topic: str, partition: int) -> Sequence[tuple[int, int, int, int, int, int]]:
        raise AssertionError("not asked")


async def test_it_waits_for_the_other_replicas_and_says_when_the_time_was_over() -> None:
    handlers = RecordHandlers(Partitions())
    request = build(
        request_class(ApiKey.DELETE_RECORDS, VERSION),
        topics=[
            {
                "name": "t",
                "partitions": [{"partition_index": index, "offset": offset} for index, offset in enumerate((5, 6, 9))],
            }
        ],
        timeout_ms=700,
    )
    context = request_context(ApiKey.DELETE_RECORDS, VERSION)
    body = await handlers.delete_records(context, VERSION, encode(request))
    [topic] = decode_response(ApiKey.DELETE_RECORDS, VERSION, body).topics
    assert [(one.low_watermark, one.error_code) for one in topic.partitions] == [
        (5, ErrorCode.NONE),
        (5, ErrorCode.REQUEST_TIMED_OUT),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
