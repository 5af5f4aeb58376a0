"""Checks of the coordinators' cores, and what their runtime waits for."""

from collections import deque

from klamm.coordinator.runtime.hosted_shard import HostedShard
from klamm.coordinator.runtime.log import Series
from klamm.coordinator.runtime.pipeline import RECORDS_IN_FLIGHT_MAX, Pipeline
from klamm.coordinator.transactions import markers, transaction
from klamm.coordinator.transactions.markers import MarkerQueues
from klamm.coordinator.transactions.shard import TransactionShard
from klamm.coordinator.transactions.transaction import Transaction
from klamm.node.views import coordinator_log
from klamm.protocol.errors import ErrorCode


def a_response_does_not_wait_for_its_record(patch):
    """A response is sent after its records are committed."""

    def careless(self, now_ms, ticket, response, *error):
        self.reply(ticket, response)

    patch.setattr(Pipeline, "reply_when_committed", careless)


def later_writes_stay_after_a_failed_one(patch):
    """A failed append rolls back all later writes, which build on it."""
    take_failed = Pipeline.take_failed

    def careless(self, write):
        later = [each for each in self._in_flight if each is not write]
        queued, self._queued = self._queued, deque()
        self._in_flight = deque([write] if write in self._in_flight else [])
        failed = take_failed(self, write)
        self._in_flight.extend(later)
        self._queued.extend(queued)
        return failed

    patch.setattr(Pipeline, "take_failed", careless)


def a_failed_append_ends_no_series(patch):
    """Appends after a rollback are another series: they do not build on the failed one."""
    patch.setattr(HostedShard, "_begin_series", _begin_once)


def _begin_once(self):
    if not hasattr(self, "series"):
        self.series = Series(self.leader_epoch, next(self.series_numbers))


def a_marker_belongs_to_the_following_series(patch):
    """A marker builds on the writes before it: it is in their series."""
    marker_of = coordinator_log._marker

    def careless(topic_id, token, batch):
        later = batch.series._replace(number=batch.series.number + 1)
        return marker_of(topic_id, token, batch._replace(series=later))

    patch.setattr(coordinator_log, "_marker", careless)


def the_newest_write_is_appended_first(patch):
    """Records are appended in the order in which they were written."""

    def careless(self):
        if not self._queued or sum(write.count for write in self._in_flight) >= RECORDS_IN_FLIGHT_MAX:
            return None
        self._in_flight.append(self._queued.pop())
        return self._in_flight[-1]

    patch.setattr(Pipeline, "take_append", careless)


def markers_do_not_wait_for_the_decision(patch):
    """The markers of a transaction are sent after its Prepare record is committed (KIP-98)."""
    write_markers = TransactionShard._write_markers
    write = TransactionShard._write

    def careless(self, now_ms, changed, new, cancel=None):
        write(self, now_ms, changed, new, cancel)
        if new.state.name.startswith("PREPARE"):
            changed.apply(new)
            changed.uncommitted.append(new)
            write_markers(self, now_ms, changed)

    patch.setattr(TransactionShard, "_write", careless)


def a_new_coordinator_writes_no_markers(patch):
    """A coordinator that loads a prepared transaction completes it (KIP-98)."""
    on_loaded = TransactionShard.on_loaded

    def careless(self, now_ms):
        with patch.context() as meanwhile:
            meanwhile.setattr(TransactionShard, "_write_markers", lambda self, now_ms, transaction: None)
            return on_loaded(self, now_ms)

    patch.setattr(TransactionShard, "on_loaded", careless)


def a_silent_producer_keeps_its_transaction(patch):
    """A transaction is aborted after its timeout (KIP-98)."""
    patch.setattr(TransactionShard, "_abort_timed_out", lambda self, now_ms: None)


def a_fenced_producer_goes_on(patch):
    """A request must have the current producer id and epoch (KIP-98)."""
    patch.setattr(transaction, "check_current", lambda known, producer_id, epoch: None)


def a_transition_begins_during_another(patch):
    """A request waits while a transition is pending."""
    patch.setattr(Transaction, "check_idle", lambda self: None)


def every_partition_counts_as_added(patch):
    """A leader appends to a transaction only if the coordinator has added the partition (KIP-890)."""
    patch.setattr(TransactionShard, "verify", lambda self, request: dict.fromkeys(request.partitions, ErrorCode.NONE))


def a_refused_marker_counts_as_written(patch):
    """A transaction is complete when every partition has its marker (KIP-98)."""
    patch.setattr(markers, "DONE", frozenset(ErrorCode))


def a_lost_marker_is_not_sent_again(patch):
    """Markers are retried until they are written (KIP-98)."""
    patch.setattr(MarkerQueues, "on_failure", lambda self, request: list(self._take_sent(request)))


def a_marker_overtakes_one_of_an_earlier_completion(patch):
    """A marker is not sent while the same broker may still get one of an earlier completion of the producer."""
    patch.setattr(MarkerQueues, "_split", lambda self, queue, in_flight: (queue, {}))
