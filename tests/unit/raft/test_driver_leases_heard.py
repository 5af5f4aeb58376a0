"""How leased fetches are reported to the core, and what ends a lease."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from tests.unit.raft.test_driver_leases import ENDPOINTS, EPOCH, OBSERVER, SECOND, THIRD, Answers, Rig, rig, vote
from tests.unit.raft.test_driver_streams import kinds

from klamm.raft import effects as fx
from klamm.raft.driver.leased_fetches import LeasedFetches
from klamm.raft.election.election_state import ElectionState
from klamm.raft.election.roles import Role
from klamm.raft.log.metadata_log import MetadataLogError, OffsetAndEpoch
from klamm.raft.messages import (
    AddVoterRequest,
    ApiVersionsResponse,
    Error,
    FetchResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    VoteResponse,
)
from klamm.raft.ports import NotLeaderError, RaftStoppedError
from klamm.raft.replication.requests import FetchLease, LeasedFetch
from klamm.raft.voters.voter_set import VoterSet, VotersInLog

__all__ = ["rig"]  # the fixture


# Reports to the core


EVENTS: dict[str, Callable[[Rig], object]] = {
    "request VoteRequest": lambda rig: rig.ask(vote()),
    "request AddVoterRequest": lambda rig: rig.ask(AddVoterRequest(None, OBSERVER, ENDPOINTS)),
    "request FetchRequest": lambda rig: rig.ask(rig.fetch(THIRD)),
    "resign": lambda rig: rig.driver.resign(EPOCH),
    "shutdown": lambda rig: rig.begin_closing(),
    "append": lambda rig: rig.propose(),
    "flushed": lambda rig: rig.log.finish_flush(),
    "tick": lambda rig: rig.reach_check_quorum(),
}


@pytest.mark.parametrize("event", EVENTS)
async def test_fetches_are_reported_in_order_before_any_other_event(rig: Rig, event: str) -> None:
    news = [rig.taken(SECOND, 2), rig.taken(OBSERVER, 2), rig.taken(SECOND), rig.taken(THIRD)]
    if event == "flushed":
        rig.log.ends_flushes = False
        rig.propose()
        await asyncio.sleep(0)  # begins the flush
    rig.answers.news, before = list(news), len(rig.said)
    EVENTS[event](rig)
    if event in ("shutdown", "flushed"):
        await asyncio.sleep(0)
    said = rig.said[before:]
    assert said[:2] == [("take",), ("leased", EPOCH, *news)]
    assert event in [" ".join(getattr(word, "__name__", str(word)) for word in one) for one in said[2:]]
    assert kinds(said).count("take") == 1


async def test_reported_fetches_keep_a_leader(rig: Rig) -> None:
    rig.answers.news = [rig.taken(SECOND)]
    rig.reach_check_quorum()
    assert rig.node.replica.role is Role.LEADER
    said = rig.said_in(rig.reach_check_quorum)
    assert "leased" not in kinds(said)
    assert rig.node.replica.role is not Role.LEADER


async def test_the_description_of_the_quorum_includes_leased_fetches(rig: Rig) -> None:
    rig.answers.news = [rig.taken(OBSERVER, 2), rig.taken(THIRD)]
    described = rig.driver.describe_quorum()
    assert [(one.key, one.log_end_offset) for one in described.observers] == [(OBSERVER, 2)]
    assert described.voters[2].log_end_offset == rig.log.end_offset
    rig.ask(AddVoterRequest(None, OBSERVER, ENDPOINTS))
    assert not kinds(rig.said_in(rig.driver.describe_quorum)), "nothing is answered any more"


async def test_reported_fetches_complete_waiting_proposals(rig: Rig) -> None:
    offset = rig.propose()
    waiting = rig.driver.wait_committed(offset)
    await rig.flushed()
    assert not waiting.done()
    before = len(rig.said)
    rig.answers.news = [rig.taken(THIRD)]
    rig.answers.wake()
    await asyncio.wait_for(waiting, 20)
    assert kinds(rig.said[before:])[:4] == ["take", "leased", "raise", "commit"]
    assert "request" not in kinds(rig.said[before:])


async def test_a_high_watermark_is_raised_before_a_reply_leaves_and_sent_to_voters_afterwards(rig: Rig) -> None:
    rig.ask(rig.fetch(OBSERVER))
    rig.ask(rig.fetch(THIRD))
    rig.propose()
    await rig.flushed()
    rig.ask(rig.fetch(THIRD, 1))
    said = rig.said_in(lambda: rig.ask(rig.fetch(SECOND)))
    end = rig.log.end_offset
    assert rig.driver.high_watermark == end
    assert [one[0] for one in said if one[0] != "tick"][:4] == ["take", "request", "raise", "commit"]
    assert ("raise", end) in said
    assert kinds(said).index("commit") < kinds(said).index("answer")
    assert kinds(said).index("notify voters") > kinds(said).index("answer")


async def test_voters_get_the_high_watermark_after_waiting_proposals(rig: Rig) -> None:
    rig.log.ends_flushes = False  # so that it takes both others
    waiting = rig.driver.wait_committed(rig.propose())
    rig.ask(rig.fetch(THIRD))
    waiting.add_done_callback(lambda future: rig.said.append(("served",)))
    rig.answers.news = [rig.taken(SECOND)]
    before = len(rig.said)
    rig.change_nothing()
    assert rig.driver.high_watermark == rig.log.end_offset
    assert not {"answer", "notify voters"} & set(kinds(rig.said[before:]))
    await rig.until(lambda: "notify voters" in kinds(rig.said[before:]))
    said = kinds(rig.said[before:])
    assert said.index("served") < said.index("answer") < said.index("notify voters")


async def test_the_proposals_of_a_turn_are_offered_together_at_its_end(rig: Rig) -> None:
    before = rig.answers.offers
    for _ in range(3):
        rig.propose()
    assert rig.answers.offers == before
    await rig.until(lambda: rig.answers.offers > before)
    await asyncio.sleep(0)
    assert rig.answers.offers == before + 1


async def test_nothing_is_offered_when_the_lease_has_ended_meanwhile(rig: Rig) -> None:
    before = rig.answers.offers
    rig.propose()
    rig.driver.resign(EPOCH)
    await asyncio.sleep(0)
    assert rig.answers.offers == before


async def test_a_descriptor_without_news_makes_no_step(rig: Rig) -> None:
    os.eventfd_write(rig.answers.fd, 1)
    before = len(rig.said)
    await rig.until(lambda: rig.answers.looked > 3)
    assert rig.said[before:] == []


# End


async def test_it_ends_before_a_vote_in_another_epoch_and_late_reports_are_ignored(rig: Rig) -> None:
    before = rig.look()
    rig.answers.left = [rig.taken(THIRD)]
    said = kinds(rig.said_in(lambda: rig.ask(vote())))
    assert said.index("request") < said.index("end") < said.index("not leader")
    assert rig.answers.at_end == [before], "nothing is changed, nor to be written"
    await rig.until(lambda: "leased" in kinds(rig.said))
    assert said.count("end") == 1
    await rig.until(lambda: rig.replies[-1] == VoteResponse(Error.NONE, EPOCH + 1, None, granted=True))
    assert rig.driver.high_watermark == rig.log.end_offset
    with pytest.raises(NotLeaderError):
        rig.driver.describe_quorum()
    rig.ask(rig.fetch(SECOND))
    assert len(rig.answers.begun) == 1


async def test_it_ends_before_a_resignation(rig: Rig) -> None:
    before = rig.look()
    said = kinds(rig.said_in(lambda: rig.driver.resign(EPOCH)))
    assert said.index("resign") < said.index("end") < said.index("not leader")
    assert rig.answers.at_end == [before]


async def test_it_ends_before_the_voters_change_and_the_taken_fetches_are_reported_and_commit(rig: Rig) -> None:
    rig.propose()
    await rig.flushed()
    before, end = rig.look(), rig.log.end_offset
    rig.answers.left = [rig.taken(SECOND)]
    said = rig.said_in(lambda: rig.ask(RemoveVoterRequest(None, THIRD)))
    assert ("end",) in said
    assert rig.answers.at_end == [before]
    assert rig.log.end_offset == end + 1
    assert rig.driver.high_watermark < end
    assert rig.said_in(rig.driver.describe_quorum)[0][0] == "leased", "a description of the quorum contains them"
    rig.ask(rig.fetch(SECOND))
    await rig.until(lambda: isinstance(rig.replies[-1], RemoveVoterResponse))
    assert len(rig.answers.begun) == 1, "the change was under way"
    rig.ask(rig.fetch(OBSERVER))
    assert [by.voters for by in rig.answers.begun[1:]] == [((2, end + 1),)]
    assert rig.said[-2:] == [("begin",), ("add", OBSERVER, False)], "the others are known when they fetch"


async def test_fetches_taken_until_the_end_are_reported_without_another_event(rig: Rig) -> None:
    waiting = rig.driver.wait_committed(rig.propose())
    await rig.flushed()
    rig.answers.left = [rig.taken(SECOND)]
    # No flush of the smaller set completes, and no replica responds.
    rig.log.ends_flushes = False
    rig.send = lambda sent, on_done: None  # type: ignore[method-assign]
    rig.ask(RemoveVoterRequest(None, THIRD))
    await asyncio.wait_for(waiting, 20)
    assert kinds(rig.said).count("leased") == 1


async def test_it_ends_with_the_step_of_a_voter_change_and_begins_again_after_it(rig: Rig) -> None:
    rig.ask(rig.fetch(OBSERVER))
    said = kinds(rig.said_in(lambda: rig.ask(AddVoterRequest(None, OBSERVER, ENDPOINTS))))
    assert said.index("request") < said.index("end")
    rig.ask(rig.fetch(SECOND))
    assert len(rig.answers.begun) == 1
    await rig.until(lambda: bool(rig.asked_for_versions))
    rig.asked_for_versions[0](ApiVersionsResponse(Error.UNSUPPORTED_VERSION))
    rig.ask(rig.fetch(SECOND))
    assert len(rig.answers.begun) == 2
    assert rig.said[-2:] == [("begin",), ("add", SECOND, True)]


async def test_a_leader_that_shuts_down_answers_nothing(rig: Rig) -> None:
    rig.begin_closing()
    await asyncio.sleep(0)
    assert kinds(rig.said).count("end") == 1
    rig.ask(rig.fetch(SECOND))
    assert len(rig.answers.begun) == 1
    await rig.closing


@pytest.mark.parametrize("end", ["hand over", "leave", "fault"])
async def test_it_ends_with_the_driver(end: str) -> None:
    rig = await Rig().start()
    if end == "fault":
        rig.driver.fail(RuntimeError("of ours"))
        assert len(rig.faults) == 1
    else:
        await rig.driver.close(100, hand_over=end == "hand over")
    assert kinds(rig.said).count("end") == 1
    assert not asyncio.get_running_loop().remove_reader(rig.answers.fd), "the loop does not watch its descriptor"
    rig.answers.wake()
    said = rig.step()
    with pytest.raises(RaftStoppedError):
        rig.ask(rig.fetch(SECOND))
    assert said == []
    await rig.close()
    assert kinds(rig.said).count("end") == len(rig.answers.begun) == 1


async def test_a_failing_step_begins_no_lease() -> None:
    rig = await Rig().lead()

    def fail() -> None:
        raise MetadataLogError("the disk is gone")

    rig.on_commit_do = fail
    rig.ask(rig.fetch(SECOND))
    [error] = rig.faults
    assert isinstance(error, MetadataLogError)
    assert rig.opened == []
    await rig.close()


# The object without a driver

TERMS = FetchLease(EPOCH, 0, 3, ((2, 3), (3, 0)), True, VotersInLog(VoterSet.of_ids([1, 2, 3]), 2, 1), ())


class Alone:
    """Replaces the driver; the test sets its answers."""

    def __init__(self) -> None:
        self.by: FetchLease | None = TERMS
        self.heard = 0
        self.answers = Answers([])
        self.leased = LeasedFetches(lambda: self.answers, lambda: self.by, lambda replica: True, self.hear)
        self.leased.on_fetch(SECOND)
        assert self.leased.is_on

    def hear(self) -> None:
        self.heard += 1


@pytest.fixture
async def alone() -> AsyncIterator[Alone]:
    made = Alone()
    yield made
    made.leased.close()
    os.close(made.answers.fd)


@pytest.mark.parametrize(
    ("effect", "ends"),
    [
        (fx.PersistElection(1, ElectionState(), 0, ()), True),
        (fx.AppendControl(EPOCH, ()), True),
        (fx.AppendFetched(b"", EPOCH), True),
        (fx.TruncateLog(1), True),
        (fx.InstallSnapshot(OffsetAndEpoch(1, 1)), True),
        (fx.LostLeadership(EPOCH), True),
        (fx.HighWatermarkAdvanced(4), False),
        (fx.Reply(1, FetchResponse(Error.NONE, EPOCH, 1), 0), False),
        (fx.LeaderChanged(1, EPOCH), False),
    ],
)
async def test_changes_end_a_lease(alone: Alone, effect: fx.Effect, ends: bool) -> None:
    alone.leased.revoke_before([fx.HighWatermarkAdvanced(3), effect])
    assert alone.leased.is_on is not ends
    assert (("end",) in alone.answers.said) is ends


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({"epoch": EPOCH + 1}, True),
        ({"counts_itself": False}, True),
        ({"voters_in_log": VotersInLog(VoterSet.of_ids([1, 2]), 5, 1)}, True),
        ({"leader_endpoints": ENDPOINTS}, True),
        (None, True),
        ({"high_watermark": 4, "voters": ((2, 4), (3, 4))}, False),
    ],
)
async def test_it_ends_when_the_core_would_answer_otherwise(
    alone: Alone, changes: dict[str, object] | None, ends: bool
) -> None:
    alone.by = None if changes is None else replace(TERMS, **changes)  # type: ignore[arg-type]
    alone.leased.revoke_if_outdated()
    assert alone.leased.is_on is not ends
    if alone.by is not None and ends:
        alone.leased.on_fetch(THIRD)
        assert alone.answers.begun == [TERMS, alone.by]


async def test_no_lease_begins_before_the_earlier_fetches_are_reported(alone: Alone) -> None:
    """Otherwise fetches would be reported out of order, and others would see the high watermark decrease."""
    left = alone.answers.left = [LeasedFetch(1, SECOND, 3, 3)]
    alone.leased.revoke()
    alone.leased.on_fetch(SECOND)
    assert len(alone.answers.begun) == 1
    assert alone.leased.is_on, "fetches are to be reported"
    await asyncio.sleep(0)
    assert alone.heard == 1
    assert alone.leased.take() == (EPOCH, left)
    assert alone.leased.take() is None
    assert not alone.leased.is_on
    alone.leased.on_fetch(SECOND)
    assert len(alone.answers.begun) == 2
    alone.leased.revoke()
    await asyncio.sleep(0)
    assert alone.heard == 1, "nothing was left"
