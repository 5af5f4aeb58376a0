"""Followers of the committed image: each receives every change, whatever the others do."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from klamm._engine.metadata import Delta, Image
from klamm.node import publishing
from klamm.node.publishing import Publisher
from klamm.protocol.generated.metadata_records import TopicRecord, encode


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "FIRST_PAUSE_MS", 1)


def images(count: int) -> list[Image]:
    """Images, each with one topic more than the previous one: t0, t1, ..."""
    made = [Image()]
    for number in range(count):
        topic = encode(TopicRecord(name=f"t{number}", topic_id=(number + 1).to_bytes(16, "big")), 0)
        made.append(made[-1].apply([topic]))
    return made


class Follower:
    """Records the new topics, and fails a given number of times."""

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.took = failures, list[list[str]]()
        self.done = asyncio.Event()

    def take(self, image: Image, delta: Delta) -> None:
        if self.failures:
            self.failures -= 1
            raise ZeroDivisionError("a fault")
        self.done.set()
        self.took.append(sorted(name for _, name in delta.created_topics))


async def test_each_follower_receives_each_change() -> None:
    publisher, followers = Publisher(), [Follower(), Follower()]
    for number, follower in enumerate(followers):
        publisher.follow(f"{number}", follower.take)
    steps = images(3)
    for before, image in itertools.pairwise(steps[1:]):
        publisher.publish(before, image)
        assert publisher.image is image
    assert [follower.took for follower in followers] == [[["t1"], ["t2"]]] * 2
    publisher.close()


async def test_a_failed_follower_is_called_again_with_all_missed_changes(caplog: pytest.LogCaptureFixture) -> None:
    publisher, well, broken = Publisher(), Follower(), Follower(failures=3)
    publisher.follow("the broken one", broken.take)
    publisher.follow("the other", well.take)
    steps = images(3)
    for before, image in itertools.pairwise(steps):
        publisher.publish(before, image)
    assert well.took == [["t0"], ["t1"], ["t2"]]
    async with asyncio.timeout(30):
        await broken.done.wait()
    assert broken.took == [["t0", "t1", "t2"]]
    [error] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "the broken one could not take the metadata" in error.message
    assert error.exc_info, "the cause, once for all three failures"
    publisher.publish(steps[-1], steps[-1])
    assert broken.took[1:] == [[]]
    publisher.close()


async def test_nothing_is_called_again_after_the_end() -> None:
    publisher, broken = Publisher(), Follower(failures=1)
    publisher.follow("the broken one", broken.take)
    steps = images(1)
    publisher.publish(*steps)
    publisher.close()
    await asyncio.sleep(0)
    assert broken.took == []
    assert not [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]


async def test_followers_share_one_delta() -> None:
    publisher, took = Publisher(), list[Delta]()
    for number in range(3):
        publisher.follow(f"{number}", lambda image, delta: took.append(delta))
    for before, image in itertools.pairwise(images(3)):
        publisher.publish(before.stable, image.stable)  # other objects each time, as those of a node
    assert [len({id(delta) for delta in took[at : at + 3]}) for at in (0, 3, 6)] == [1, 1, 1]
    publisher.close()
