"""Creates the internal topics of streams groups (Kafka's `AutoTopicCreationManager`)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from klamm.broker.request import RequestContext, monotonic_ms
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.streams_messages import InternalTopic
from klamm.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

log = logging.getLogger("klamm.node")

CREATE_TOPICS_VERSION: Final = 7
FAILURES_MAX: Final = 1000

CreateTopics = Callable[[RequestContext, CreateTopicsRequest], Awaitable[CreateTopicsResponse]]


class InternalTopicCreation:
    """Asks the controller for topics in the name of the client whose heartbeat needs them.

    A topic whose creation failed is not asked for again until its retry time, and until then the failure is shown to
    the members of the group.
    """

    def __init__(
        self,
        create: CreateTopics,
        in_background: Callable[[Coroutine[Any, Any, None]], None],
        request_timeout_ms: int,
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        """`create` sends a request to the active controller in the name of a client; `in_background` runs it."""
        self._create, self._in_background = create, in_background
        self._request_timeout_ms, self._clock_ms = request_timeout_ms, clock_ms
        self._creating: set[str] = set()
        self._failures: dict[str, tuple[int, str]] = {}
        """By topic: when to retry, and the reason of the failure."""

    def create(self, context: RequestContext, topics: Sequence[InternalTopic], retry_ms: int) -> None:
        """Ask for topics, unless a request is in flight or failed less than `retry_ms` ago."""
        failed = self.failures(topics)
        wanted = [topic for topic in topics if topic.name not in failed and topic.name not in self._creating]
        if not wanted:
            return
        self._creating.update(topic.name for topic in wanted)
        self._in_background(self._create_now(context, wanted, retry_ms))

    def failures(self, topics: Iterable[InternalTopic]) -> dict[str, str]:
        """The recent failures to create topics, by name."""
        now_ms = self._clock_ms()
        found = ((topic.name, self._failures.get(topic.name)) for topic in topics)
        return {name: failure[1] for name, failure in found if failure is not None and now_ms < failure[0]}

    async def _create_now(self, context: RequestContext, topics: list[InternalTopic], retry_ms: int) -> None:
        arrived_ms = monotonic_ms()
        caller = context._replace(
            api_key=ApiKey.CREATE_TOPICS,
            api_version=CREATE_TOPICS_VERSION,
            arrived_ms=arrived_ms,
            deadline_ms=arrived_ms + self._request_timeout_ms,
        )
        request = CreateTopicsRequest(tuple(map(_creatable, topics)), self._request_timeout_ms)
        reasons: dict[str, str] = {}
        try:
            response = await self._create(caller, request)
            for result in response.topics:
                if result.error_code is not ErrorCode.NONE:
                    reasons[result.name] = result.error_message or result.error_code.name
        except Exception as error:  # no request waits for the creation; the group's next heartbeat starts another
            log.exception("internal topics were not created: %s", ", ".join(topic.name for topic in topics))
            reasons = dict.fromkeys((topic.name for topic in topics), str(error))
        finally:
            self._creating.difference_update(topic.name for topic in topics)
        if reasons:
            log.warning("internal topics were not created: %s", reasons)
        self._note(reasons, self._clock_ms() + retry_ms)

    def _note(self, reasons: dict[str, str], until_ms: int) -> None:
        now_ms = self._clock_ms()
        kept = {name: failure for name, failure in self._failures.items() if now_ms < failure[0]}
        kept |= {name: (until_ms, reason) for name, reason in reasons.items()}
        soonest = sorted(kept, key=lambda name: kept[name][0])
        for name in soonest[: max(len(kept) - FAILURES_MAX, 0)]:
            del kept[name]
        self._failures = kept


def _creatable(topic: InternalTopic) -> CreatableTopic:
    """A replication factor of 0 is the default of the cluster."""
    configs = tuple(CreatableTopicConfig(config.key, config.value) for config in topic.topic_configs)
    return CreatableTopic(topic.name, topic.partitions, topic.replication_factor or -1, (), configs)
