"""The leader's log, fetches, the high watermark."""

from klamm.raft import node
from klamm.raft.election import role_states
from klamm.raft.log import metadata_log as log
from klamm.raft.messages import Error
from klamm.raft.replication import following, leading
from klamm.raft.replication.requests import LeasedFetch
from klamm.raft.voters import membership
from klamm.raft.voters.quorum import replicated_offset

log_valid = log.Valid()


def commit_records_of_an_older_epoch(patch):
    """Records of earlier leaders are committed only together with one of the leader's own epoch (Raft 5.4.2)."""
    _count_from(patch, lambda state: -1)


def commit_all_below_the_own_first_record(patch):
    """The first record of the epoch itself must be on a majority, not only those before it (Raft 5.4.2)."""
    _count_from(patch, lambda state: state.epoch_start_offset - 1)


def _count_from(patch, lowest_of):
    advance = leading.Leading._maybe_advance_high_watermark

    def careless(self, state):
        real, state.epoch_start_offset = state.epoch_start_offset, lowest_of(state)
        try:
            advance(self, state)
        finally:
            state.epoch_start_offset = real

    patch.setattr(leading.Leading, "_maybe_advance_high_watermark", careless)


def no_record_begins_an_epoch(patch):
    """Each epoch begins with a LeaderChange record, so that a leader can commit without clients (KIP-595)."""

    def silent(self):
        state, here = self._replica.state, self._replica
        if isinstance(state, role_states.Leader) and here.durable_ticket >= state.ticket:
            state.started = True

    patch.setattr(leading.Leading, "maybe_start_epoch", silent)


def leader_takes_every_fetch_position(patch):
    """A Fetch from a diverging log is answered with the diverging epoch (`RaftLog.validateOffsetAndEpoch`)."""
    patch.setattr(leading, "check_fetch_position", lambda log, offset, last_epoch: log_valid)


def a_fetch_below_the_log_is_answered_from_it(patch):
    """A replica that lacks cleaned records gets the snapshot's id (KIP-630)."""

    def careless(log_view, offset, last_epoch):
        position = check(log_view, offset, last_epoch)
        return log_valid if isinstance(position, log.NeedsSnapshot) else position

    check = leading.check_fetch_position
    patch.setattr(leading, "check_fetch_position", careless)


def a_follower_cuts_where_its_leader_says(patch):
    """A follower truncates to the end of its own records of that epoch, if that is lower (`truncateToEndOffset`)."""
    patch.setattr(following, "truncation_offset", lambda log, diverging: min(diverging.offset, log.end_offset))


def a_log_is_cut_below_the_high_watermark(patch):
    """Committed records are never truncated, whatever a leader says (KafkaRaftClient: fatal)."""

    def careless(self, state, response):
        known, self._replica.high_watermark = self._replica.high_watermark, -1
        try:
            return take(self, state, response)
        finally:
            self._replica.high_watermark = known

    take = following.Following._take_fetched
    patch.setattr(following.Following, "_take_fetched", careless)


def a_follower_takes_its_leaders_high_watermark_as_it_is(patch):
    """A follower's high watermark is at most its own log end offset."""
    tick = following.Following.tick

    def careless(self, now_ms, state):
        self._replica.advance_high_watermark(state.leader_high_watermark)
        return tick(self, now_ms, state)

    patch.setattr(following.Following, "tick", careless)


def observers_count(patch):
    """Only voters count for commits, observers do not (KIP-595)."""
    advance = leading.Leading._maybe_advance_high_watermark

    def careless(self, state):
        ends = [progress.end_offset for progress in [*state.voters.values(), *state.observers.values()]]
        offset = replicated_offset([*ends, self._replica.log.flushed_offset])
        if offset > max(state.epoch_start_offset, state.high_watermark):
            state.high_watermark = offset
            self._replica.advance_high_watermark(offset)
        advance(self, state)

    note = leading.Leading.note_progress

    def noted(self, state, fetch):
        note(self, state, fetch)
        self._maybe_advance_high_watermark(state)

    patch.setattr(leading.Leading, "_maybe_advance_high_watermark", careless)
    patch.setattr(leading.Leading, "note_progress", noted)


def removed_voters_count(patch):
    """Only the current voters count for commits (KIP-853)."""

    def forgetful(replica_here, state, now_ms):
        known = dict(state.voters)
        take_voters(replica_here, state, now_ms)
        state.voters = known | state.voters

    take_voters = membership.take_voters
    patch.setattr(leading, "take_voters", forgetful)


def a_resigned_leader_answers_fetches(patch):
    """A resigned leader must not delay the election of another (KIP-595)."""

    def careless(self, request, *, is_possible):
        error = check(self, request, is_possible=is_possible)
        is_resigned = isinstance(self._replica.state, role_states.Resigned)
        return Error.NONE if is_resigned and error is Error.NOT_LEADER_OR_FOLLOWER else error

    check = leading.Leading.check_asker
    patch.setattr(leading.Leading, "check_asker", careless)


def a_leader_without_a_majority_leads_on(patch):
    """A leader without fetches from a majority resigns, so that a reachable replica can be elected (KIP-595)."""
    set_deadline = leading.Leading.tick

    def stubborn(self, now_ms, state):
        state.check_quorum_deadline_ms = max(state.check_quorum_deadline_ms, now_ms + 1)
        return set_deadline(self, now_ms, state)

    patch.setattr(leading.Leading, "tick", stubborn)


def a_high_watermark_is_not_told(patch):
    """Followers learn the high watermark at once (KIP-1166)."""
    answer_parked = leading.Leading._answer_parked

    def quiet(self, state, ready):
        end_offset = self._replica.log.end_offset
        answer_parked(self, state, [parked for parked in ready if parked.request.fetch_offset < end_offset])

    patch.setattr(leading.Leading, "_answer_parked", quiet)


def an_answer_that_waited_leaves_as_it_was(patch):
    """A range of the log is valid only while its leader leads: a response that waited for the disk is checked again."""
    patch.setattr(node.RaftNode, "settled", lambda self, effect: effect)


def a_diverging_fetch_acknowledges(patch):
    """A Fetch acknowledges the records below its offset only if the logs agree (`validateOffsetAndEpoch`)."""
    on_fetch = leading.Leading.on_fetch

    def careless(self, now_ms, request_id, request):
        state = self._replica.state
        if isinstance(state, role_states.Leader) and self._check(request) is Error.NONE:
            end_offset = self._replica.log.end_offset
            self.note_progress(state, LeasedFetch(now_ms, request.replica, request.fetch_offset, end_offset))
        on_fetch(self, now_ms, request_id, request)

    patch.setattr(leading.Leading, "on_fetch", careless)


def a_new_disk_acknowledges_for_the_old_one(patch):
    """A voter's fetches with a new disk count as an observer's (KIP-853)."""
    note_progress = leading.Leading.note_progress

    def careless(self, state, fetch):
        voter = state.voters.get(fetch.replica.id)
        note_progress(self, state, fetch if voter is None else fetch._replace(replica=voter.key))

    patch.setattr(leading.Leading, "note_progress", careless)


def any_fetch_keeps_a_leader(patch):
    """A leader resigns unless a majority fetches (KIP-595)."""
    count_for_quorum = leading.Leading.count_for_quorum

    def careless(self, now_ms, state, voter):
        state.fetched_voters.update(state.voters)
        count_for_quorum(self, now_ms, state, voter)

    patch.setattr(leading.Leading, "count_for_quorum", careless)


def a_removed_leader_keeps_itself(patch):
    """A leader that is not a voter does not count towards the fetching majority (KIP-595, KIP-853)."""
    count_for_quorum = leading.Leading.count_for_quorum

    def careless(self, now_ms, state, voter):
        if not self._replica.is_voter:
            state.fetched_voters.add(self._replica.id)
        count_for_quorum(self, now_ms, state, voter)

    patch.setattr(leading.Leading, "count_for_quorum", careless)


def leadership_is_announced_before_a_commit_of_the_own_epoch(patch):
    """A leader knows the high watermark only after a record of its own epoch is committed (Raft 6.4)."""
    start = leading.Leading.maybe_start_epoch

    def hasty(self):
        was_started = getattr(self._replica.state, "started", True)
        start(self)
        if not was_started and self._replica.state.started:
            self._replica.announce_leadership()

    patch.setattr(leading.Leading, "maybe_start_epoch", hasty)
