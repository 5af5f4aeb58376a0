"""The simulated member of a consumer group."""

import random
from types import SimpleNamespace

import pytest

from klamm.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    OwnedTopic,
)
from klamm.testing.simulator.brokers.group_member import GroupMember
from klamm.testing.simulator.brokers.member_process import Subscription
from klamm.testing.simulator.timeline import Timeline

TOPIC = b"t" * 16


class Coordinators:
    """Takes heartbeats."""

    async def heartbeat(self, caller, request):
        return request


def result(coroutine):
    with pytest.raises(StopIteration) as end:
        coroutine.send(None)
    return end.value.value


class Group:
    """A group whose coordinator answers when the test does."""

    group_id, sent, life = "g", None, 1

    def __init__(self):
        self.network = SimpleNamespace(call=self.call)

    def coordinator(self):
        return SimpleNamespace(coordinators=SimpleNamespace(do=lambda work, reply: reply(result(work(Coordinators())))))

    def is_newest(self, coordinators):
        return True

    def watched(self, work):
        return work

    def on_owned(self, member):
        """Nothing is checked."""

    def call(self, source, target, request):
        def take(found):
            self.sent, *_ = found

        request.handle(take)
        self.answer = lambda response: request.on_answer((response, True, 1))


def answered(epoch, *partitions):
    topics = (OwnedTopic(TOPIC, partitions),) if partitions else ()
    return ConsumerGroupHeartbeatResponse(member_epoch=epoch, assignment=HeartbeatAssignment(topics))


def test_a_member_reports_also_what_it_is_about_to_use():
    """Otherwise the coordinator would take it for given up, and give it to another member (seed 168)."""
    group, timeline = Group(), Timeline(random.Random(1))
    timeline.network = group.network
    member = GroupMember(timeline, group, "m", Subscription(("t",)), None)
    member.work()
    group.answer(answered(1, 0))
    member.work()
    assert (member.owned, group.sent.topic_partitions) == (frozenset(), (OwnedTopic(TOPIC, (0,)),))
    timeline.run(2_000_000)
    assert member.owned == {(TOPIC, 0)}
    group.answer(answered(2, 1))
    member.work()
    assert (member.owned, group.sent.topic_partitions) == ({(TOPIC, 0)}, (OwnedTopic(TOPIC, (0, 1)),))
