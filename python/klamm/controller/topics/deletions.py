"""Deleting topics, by name or id (`ReplicationControlManager.deleteTopics`)."""

from __future__ import annotations

from collections import Counter
from typing import Final

from klamm.controller.mutation_quotas import Charge
from klamm.controller.result import Result, check_record_count
from klamm.controller.speculation import Speculation
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.generated.metadata_records import RemoveTopicRecord
from klamm.protocol.messages.topics import ZERO_ID, DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

FIRST_VERSION_WITH_DELETION_DISABLED: Final = 3
"""Earlier versions of DeleteTopics have no error code for a cluster with delete.topic.enable=false."""


def delete_topics(state: Speculation, request: DeleteTopicsRequest, charge: Charge) -> Result[DeleteTopicsResponse]:
    """Delete all topics of the request that are valid, in one batch."""
    wanted = WantedDeletions(state, request)
    wanted.charge(charge)
    records = [state.encode(RemoveTopicRecord(topic_id=topic_id)) for topic_id in wanted.topics]
    check_record_count(records)
    return Result(DeleteTopicsResponse(wanted.results()), records)


def check_deletion_enabled(enabled: bool, api_version: int) -> None:
    """Raises TOPIC_DELETION_DISABLED, or INVALID_REQUEST for clients that do not know it."""
    if enabled:
        return
    is_known = api_version >= FIRST_VERSION_WITH_DELETION_DISABLED
    code = ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST
    raise KafkaError(code, "Topic deletion is disabled (delete.topic.enable=false).")


def _unknown(name: str | None, topic_id: bytes, code: ErrorCode) -> DeletableTopicResult:
    return DeletableTopicResult(name, topic_id, code, f"There is no topic of this {'id' if name is None else 'name'}.")


class WantedDeletions:
    """A resolved DeleteTopics request: the topics to delete, and the errors of the others."""

    def __init__(self, state: Speculation, request: DeleteTopicsRequest) -> None:
        self._state = state
        self._answers: list[DeletableTopicResult] = []
        self.topics: dict[bytes, str | None] = {}
        names = list(request.topic_names)
        ids: list[bytes] = []
        for topic in request.topics:
            if topic.name is None and topic.topic_id == ZERO_ID:
                self._refuse(None, ZERO_ID, "Name a topic or give its id.")
            elif topic.name is None:
                ids.append(topic.topic_id)
            elif topic.topic_id == ZERO_ID:
                names.append(topic.name)
            else:
                self._refuse(topic.name, topic.topic_id, "Name the topic or give its id, not both.")
        self._add_ids(Counter(ids))
        self._add_names(Counter(names))

    def _refuse(self, name: str | None, topic_id: bytes, text: str) -> None:
        self._answers.append(DeletableTopicResult(name, topic_id, ErrorCode.INVALID_REQUEST, text))

    def _add_ids(self, ids: Counter[bytes]) -> None:
        for topic_id, count in ids.items():
            if count > 1:
                self._refuse(None, topic_id, "Duplicate topic id.")
                continue
            name = self._state.image.topic_name(topic_id)
            if name is None:
                self._answers.append(_unknown(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                self.topics[topic_id] = name
        self._twice = {topic_id for topic_id, count in ids.items() if count > 1}

    def _add_names(self, names: Counter[str]) -> None:
        for name, count in names.items():
            if count > 1:
                self._refuse(name, ZERO_ID, "Duplicate topic name.")
                continue
            topic_id = self._state.image.topic_id(name)
            if topic_id is None:
                self._answers.append(_unknown(name, ZERO_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif topic_id in self._twice or topic_id in self.topics:
                self.topics.pop(topic_id, None)
                self._refuse(name, topic_id, "The topic of this name is in the request by its id as well.")
            else:
                self.topics[topic_id] = name

    def charge(self, charge: Charge) -> None:
        """Raise if the client's quota is exceeded."""
        for topic_id, name in list(self.topics.items()):
            try:
                charge(self._state.image.topic_partition_count(topic_id))
            except KafkaError as error:
                del self.topics[topic_id]
                self._answers.append(DeletableTopicResult(name, topic_id, error.code, error.message))

    def results(self) -> tuple[DeletableTopicResult, ...]:
        """The answer for every topic of the request."""
        deleted = (DeletableTopicResult(name, topic_id) for topic_id, name in self.topics.items())
        return (*self._answers, *deleted)
