"""What share coordinators check, and what they do about failures (KIP-932)."""

from dataclasses import replace

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
