"""The quota on partitions that a client creates and deletes (KIP-599, `ControllerMutationQuotaManager`).

Each client has a bucket of tokens, which its limit fills. A strict quota refuses a change while the bucket is
overdrawn; for older versions of a request, whose clients do not know that error, it only names the throttle time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from klamm._engine.metadata import Image
from klamm.controller.requester import Requester
from klamm.protocol.client_quotas import CLIENT_ID, USER
from klamm.protocol.errors import ErrorCode, KafkaError

Charge = Callable[[int], None]
"""Charges the client for a number of partitions. Raises THROTTLING_QUOTA_EXCEEDED."""

_KEY: Final = "controller_mutation_rate"
_SWEPT_FROM: Final = 64


class TokenBucket:
    """The tokens of one client; negative while it is overdrawn."""

    def __init__(self, now_ms: int, tokens: float) -> None:
        self._at_ms, self.tokens = now_ms, tokens

    def refill(self, now_ms: int, per_second: float, capacity: float) -> None:
        """Add the tokens of the time since the last call."""
        self.tokens = min(capacity, self.tokens + per_second * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms

    def is_full(self, now_ms: int, per_second: float, capacity: float) -> bool:
        """Whether it is full, like a new bucket."""
        return self.tokens + per_second * (now_ms - self._at_ms) / 1000 >= capacity


class MutationQuota:
    """The charge of one request."""

    def __init__(self, bucket: TokenBucket, per_second: float, *, is_strict: bool) -> None:
        self._bucket, self._per_second, self._is_strict = bucket, per_second, is_strict
        self.throttle_time_ms = 0

    def charge(self, partition_count: int) -> None:
        """Raises THROTTLING_QUOTA_EXCEEDED."""
        if self._is_strict and self._bucket.tokens < 0:
            self._throttle()
            text = f"The quota {_KEY} is used up; try again in {self.throttle_time_ms} ms."
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
        self._bucket.tokens -= partition_count
        if not self._is_strict and self._bucket.tokens < 0:
            self._throttle()

    def _throttle(self) -> None:
        self.throttle_time_ms = int(-self._bucket.tokens / self._per_second * 1000 + 0.5)


class MutationQuotas:
    """The buckets of all clients that have a limit."""

    def __init__(self, saved_s: int) -> None:
        """A bucket holds the tokens of `saved_s` seconds."""
        self._saved_s: Final = saved_s
        self._buckets: dict[Requester, tuple[float, TokenBucket]] = {}
        self._sweep_at = _SWEPT_FROM

    def of(self, image: Image, requester: Requester, now_ms: int, *, is_strict: bool) -> MutationQuota | None:
        """The quota of a request; None without a limit."""
        for entity, charged in _most_specific_first(requester):
            per_second = image.quota(entity).get(_KEY)
            if per_second is not None:
                return MutationQuota(self._bucket(charged, now_ms, per_second), per_second, is_strict=is_strict)
        return None

    def _bucket(self, charged: Requester, now_ms: int, per_second: float) -> TokenBucket:
        if len(self._buckets) >= self._sweep_at:
            self._sweep(now_ms)
        capacity = per_second * self._saved_s
        _, bucket = self._buckets.get(charged) or (per_second, TokenBucket(now_ms, capacity))
        bucket.refill(now_ms, per_second, capacity)
        self._buckets[charged] = per_second, bucket
        return bucket

    def _sweep(self, now_ms: int) -> None:
        kept = {
            charged: (per_second, bucket)
            for charged, (per_second, bucket) in self._buckets.items()
            if not bucket.is_full(now_ms, per_second, per_second * self._saved_s)
        }
        self._buckets, self._sweep_at = kept, max(_SWEPT_FROM, 2 * len(kept))


def _most_specific_first(requester: Requester) -> Iterator[tuple[dict[str, str | None], Requester]]:
    """The entities whose limits may apply, each with the entities that share its bucket (KIP-55).

    The quota of the default client id does not apply to a client without an id.
    """
    user, client_id = requester.user, requester.client_id
    clients = (client_id, None) if client_id else ()
    for of_user in (user, None):
        for client in clients:
            yield {USER: of_user, CLIENT_ID: client}, requester
        yield {USER: of_user}, Requester(user, "")
    for client in clients:
        yield {CLIENT_ID: client}, Requester("", client_id)
