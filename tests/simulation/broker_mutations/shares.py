"""What share coordinators check, and what they do about failures (KIP-932)."""

from dataclasses import replace

from klamm.coordinator.share import shard
from klamm.coordinator.share.shard import WRITE, ShareShard
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.share_state import NO_EPOCH


def _ignore(patch, handler, epoch):
    """The handler takes a request whatever this epoch is."""
    handle = getattr(ShareShard, handler)

    def careless(self, now_ms, ticket, key, asked):
        return handle(self, now_ms, ticket, key, replace(asked, **{epoch: NO_EPOCH}))

    patch.setattr(ShareShard, handler, careless)


def a_share_state_keeps_what_was_not_appended(patch):
    """After a failed append a state is as its log says."""
    patch.setattr(ShareShard, "rollback", lambda self, snapshot: None)


def a_replaced_leader_writes_its_state(patch):
    """Writes of an earlier leader epoch are refused."""
    _ignore(patch, "on_write", "leader_epoch")


def a_late_write_moves_the_start_offset_back(patch):
    """Within a state epoch the start offset does not fall."""
    patch.setattr(shard, "not_before", lambda state, asked: (asked.start_offset, asked.delivery_complete_count))


def a_repeated_initialization_begins_a_state_again(patch):
    """What is repeated in the same state epoch does not reset a state that is in use."""
    patch.setattr(shard, "is_repeated", lambda state, asked: False)


def an_initialization_of_an_earlier_epoch_counts(patch):
    """Initializations of an earlier state epoch are refused."""
    _ignore(patch, "on_initialize", "state_epoch")


def a_write_of_an_earlier_state_epoch_counts(patch):
    """Writes of an earlier state epoch are refused."""
    _ignore(patch, "on_write", "state_epoch")


def an_acknowledgement_does_not_wait_for_its_record(patch):
    """A write is answered when it is committed."""
    answer = ShareShard._answer

    def careless(self, *request):
        now_ms, ticket, key, operation, work = request
        if operation is not WRITE:
            return answer(self, *request)

        def answered():
            try:
                result = work()
            except KafkaError as error:
                result = operation.result(key.partition, error.code, error.message)
            self.pipeline.reply(ticket, result)
            return result

        return answer(self, now_ms, None, key, operation, answered)

    patch.setattr(ShareShard, "_answer", careless)
