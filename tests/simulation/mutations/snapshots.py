"""Serving, fetching, checking and installing snapshots (KIP-630)."""

from dataclasses import replace

from klamm.raft.driver import delivery, serving
from klamm.raft.driver import snapshots as driver_snapshots
from klamm.raft.messages import FetchSnapshotResponse
from klamm.raft.replication import following, snapshot_fetching, snapshot_serving
from klamm.raft.voters.voter_set import ReplicaKey
from klamm.testing.simulator import memory_log, wiping, world


def a_damaged_snapshot_is_installed(patch):
    """A snapshot is checked before it replaces the log."""
    patch.setattr(memory_log, "damage_of", lambda received: None)


def the_log_behind_an_installed_snapshot_is_kept(patch):
    """After an installation, the log begins and ends at the snapshot."""
    patch.setattr(memory_log.MemoryLog, "truncate_to_latest_snapshot", lambda self: None)


def the_state_is_not_loaded_from_an_installed_snapshot(patch):
    """The state is loaded from an installed snapshot."""
    patch.setattr(delivery.Delivery, "on_snapshot_installed", lambda self, snapshot_id: None)


def a_part_of_a_snapshot_is_served_as_the_whole(patch):
    """Each slice has the size of the whole snapshot."""

    def hasty(response):
        if isinstance(response, FetchSnapshotResponse) and response.size:
            response = replace(response, size=response.position + len(response.unaligned_records))
        return response

    with_bytes = serving.with_bytes
    patch.setattr(serving, "with_bytes", lambda log, response, read: hasty(with_bytes(log, response, read)))


def the_high_watermark_stays_behind_an_installed_snapshot(patch):
    """A snapshot contains only committed records, so it raises the high watermark."""
    on_checked = snapshot_fetching.SnapshotFetching.on_checked

    def forgetful(self, now_ms, attempt, is_valid):
        state = self._replica.state
        known = getattr(state, "leader_high_watermark", None)
        on_checked(self, now_ms, attempt, is_valid)
        if known is not None:
            state.leader_high_watermark = known

    patch.setattr(snapshot_fetching.SnapshotFetching, "on_checked", forgetful)


def a_check_of_an_earlier_fetch_installs_a_later_one(patch):
    """Only the file that was checked is installed, since another leader's may differ.

    The driver cancels a check when its file is dropped, and the core ignores a result that arrives anyway.
    """
    on_checked = snapshot_fetching.SnapshotFetching.on_checked

    def careless(self, now_ms, attempt, is_valid):
        fetching = getattr(self._replica.state, "fetching", None)
        on_checked(self, now_ms, fetching.attempt if fetching is not None else attempt, is_valid)

    patch.setattr(snapshot_fetching.SnapshotFetching, "on_checked", careless)
    patch.setattr(driver_snapshots.SnapshotDriver, "drop", lambda self: self._log.drop_received_snapshot())


def an_answer_that_brings_nothing_is_followed_by_a_fetch_at_once(patch):
    """Requests during a snapshot fetch must have a backoff."""
    on_fetch_response = following.Following.on_fetch_response

    def hasty(self, now_ms, response):
        on_fetch_response(self, now_ms, response)
        return True

    patch.setattr(following.Following, "on_fetch_response", hasty)


def a_slice_of_another_snapshot_is_kept(patch):
    """A slice must be of the requested snapshot."""
    _careless_of(patch, "snapshot_id", lambda fetching: fetching.id)


def a_slice_of_another_place_is_kept(patch):
    """Slices must be in order."""
    _careless_of(patch, "position", lambda fetching: fetching.position)


def _careless_of(patch, field, asked_for):
    on_response = snapshot_fetching.SnapshotFetching.on_response

    def careless(self, now_ms, response):
        fetching = getattr(self._replica.state, "fetching", None)
        if fetching is not None:
            response = replace(response, **{field: asked_for(fetching)})
        return on_response(self, now_ms, response)

    patch.setattr(snapshot_fetching.SnapshotFetching, "on_response", careless)


def a_slice_beyond_the_end_is_kept(patch):
    """A snapshot must not exceed its announced size."""
    patch.setattr(snapshot_fetching, "_is_next_slice", lambda fetching, response: True)


def an_older_snapshot_is_installed(patch):
    """A log is replaced only by a snapshot that contains more."""
    patch.setattr(snapshot_fetching.SnapshotFetching, "_is_ahead", lambda self, snapshot_id: True)


def a_snapshot_takes_back_what_is_committed(patch):
    """A snapshot that ends below the high watermark lacks committed records."""
    is_ahead = snapshot_fetching.SnapshotFetching._is_ahead

    def careless(self, snapshot_id):
        known, self._replica.high_watermark = self._replica.high_watermark, -1
        try:
            return is_ahead(self, snapshot_id)
        finally:
            self._replica.high_watermark = known

    patch.setattr(snapshot_fetching.SnapshotFetching, "_is_ahead", careless)


def who_fetches_a_snapshot_is_not_there(patch):
    """A voter that fetches a snapshot counts for check-quorum (KAFKA-15489)."""
    on_fetch_snapshot = snapshot_serving.SnapshotServing.on_fetch_snapshot

    def careless(self, now_ms, request_id, request):
        stranger = replace(request, replica=ReplicaKey(1_000))
        on_fetch_snapshot(self, now_ms, request_id, stranger)

    patch.setattr(snapshot_serving.SnapshotServing, "on_fetch_snapshot", careless)


def a_static_voter_loses_its_disk_at_any_time(patch):
    """Static voters do not survive the loss of a disk (KIP-853, Motivation), so the simulator must not do it."""
    patch.setattr(wiping, "may_be_wiped", lambda replicas, replica, history: True)
    patch.setattr(world, "may_be_wiped", lambda replicas, replica, history: True)
    patch.setattr(world, "WIPED_FOR_US", 10_000)
