"""What share coordinators check, and what they do about failures (KIP-932)."""

from dataclasses import replace

from klamm.coordinator.share import shard
from klamm.coordinator.share.shard import WRITE, ShareShard
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.share_state import NO_EPOCH


def a_share_state_keeps_what_was_not_appended(patch):
    """After a failed append a state is as its log says."""
    patch.setattr(ShareShard, "rollback", lambda self, snapshot: None)


def a_replaced_leader_writes_its_state(patch):
    """Writes of an earlier leader epoch are refused."""
    on_write = ShareShard.on_write

    def careless(self, now_ms, ticket, key, asked):
        return on_write(self, now_ms, ticket, key, replace(asked, leader_epoch=NO_EPOCH))

    patch.setattr(ShareShard, "on_write", careless)


def a_late_write_moves_the_start_offset_back(patch):
    """Within a state epoch the start offset does not fall."""
    patch.setattr(shard, "not_before", lambda state, asked: (asked.start_offset, asked.delivery_complete_count))


def a_repeated_initialization_begins_a_state_again(patch):
    """What is repeated in the same state epoch does not reset a state that is in use."""
    patch.setattr(shard, "is_repeated", lambda state, asked: False)


def an_initialization_of_an_earlier_epoch_counts(patch):
    """Initializations of an earlier state epoch are refused."""
    on_initialize = ShareShard.on_initialize

    def careless(self, now_ms, ticket, key, asked):
        return on_initialize(self, now_ms, ticket, key, replace(asked, state_epoch=NO_EPOCH))

    patch.setattr(ShareShard, "on_initialize", careless)


def a_write_of_an_earlier_state_epoch_counts(patch):
    """Writes of an earlier state epoch are refused."""
    on_write = ShareShard.on_write

    def careless(self, now_ms, ticket, key, asked):
        return on_write(self, now_ms, ticket, key, replace(asked, state_epoch=NO_EPOCH))

    patch.setattr(ShareShard, "on_write", careless)


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
