"""The recipes on three replicas, which lose their leader meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.trees import CONFIG, grove
from tests.support.waiting import until

from klamm.raft.recipes import (
    BadVersionError,
    Barrier,
    ChangesLostError,
    Counter,
    Election,
    Lock,
    NodeExistsError,
    NoNodeError,
    Queue,
    SessionLostError,
    SyncTree,
)


async def test_nodes_are_the_same_on_every_replica(tmp_path):
    async with grove(tmp_path) as three:
        one, two, third = three.trees.values()
        assert await one.create("/a", b"1") == "/a"
        node = await two.get("/a")
        assert (node.data, node.version) == (b"1", 0)
        assert await third.set("/a", b"2", version=0) == 1
        with pytest.raises(BadVersionError):
            await one.set("/a", b"3", version=0)
        with pytest.raises(NodeExistsError):
            await two.create("/a")
        assert await two.create("/b/c-", is_sequential=True, with_parents=True) == "/b/c-0000000000"
        assert await one.children("/b") == ["c-0000000000"]
        await third.delete("/a", version=1)
        assert await one.find("/a") is None
        with pytest.raises(NoNodeError):
            await one.get("/a")


async def test_a_lock_is_held_by_one_at_a_time_through_the_loss_of_a_leader(tmp_path):
    async with grove(tmp_path) as three:
        lost = await three.leader()
        holders, tokens, most = [], [], 0

        async def work(tree, name):
            nonlocal most
            session = await tree.session(timeout_s=20)
            for _ in range(4):
                async with Lock(session, "/locks/x", name) as token:
                    holders.append(name)
                    most = max(most, len(holders))
                    tokens.append(token)
                    await asyncio.sleep(0.005)
                    holders.remove(name)

        workers = [
            asyncio.ensure_future(work(tree, b"%d" % node_id))
            for node_id, tree in three.trees.items()
            if node_id != lost
            for _ in range(2)
        ]
        await until(lambda: len(tokens) >= 3)
        await three.lose(lost)
        await asyncio.gather(*workers)
        assert most == 1
        assert tokens == sorted(set(tokens))
        assert len(tokens) == 16


async def test_an_isolated_owner_loses_the_lock_before_another_gets_it(tmp_path):
    async with grove(tmp_path) as three:
        lost = await three.leader()
        dying, living = three.trees[lost], next(tree for node_id, tree in three.trees.items() if node_id != lost)
        session = await dying.session(timeout_s=3)  # short, but a busy machine must be able to renew it
        lock = Lock(session, "/locks/x", b"first")
        first = await lock.acquire()
        assert lock.is_held
        waiting = Lock(await living.session(), "/locks/x", b"second")
        with pytest.raises(TimeoutError):
            await waiting.acquire(timeout_s=0.05)
        assert await waiting.holder() == b"first"
        ended = []
        session.on_end(lambda: ended.append(lock.is_held))
        acquiring = asyncio.ensure_future(waiting.acquire())
        three.hub.reachable = lambda source, target: lost not in (source, target)
        assert lock.is_held
        while not acquiring.done():
            overlaps = lock.is_held and waiting.token is not None
            assert not overlaps
            await asyncio.sleep(0.005)
        assert not lock.is_held
        assert await acquiring > first
        await until(lambda: ended)
        assert ended == [False]
        assert await waiting.holder() == b"second"
        three.hub.reachable = lambda source, target: True
        assert await lock.holder() == b"second"


async def test_silent_sessions_expire_with_their_nodes_and_renewed_ones_do_not(tmp_path):
    async with grove(tmp_path) as three:
        one, two, third = three.trees.values()
        quiet, kept = await one.session(timeout_s=3), await two.session(timeout_s=30)
        await one.create("/quiet", session=quiet)
        await two.create("/kept", session=kept)
        await third.wait_for(lambda machine: machine.exists("/quiet"))  # a follower may apply it later than `one`
        quiet._renewing.cancel()  # as if its process had hung
        await third.wait_for(lambda machine: not machine.exists("/quiet"), timeout_s=30)
        assert not quiet.is_alive
        with pytest.raises(SessionLostError):
            await one.create("/more", session=quiet)
        assert kept.is_alive
        assert await third.find("/kept") is not None
        await kept.close()
        assert await third.find("/kept") is None
        with pytest.raises(SessionLostError):
            await Lock(kept, "/locks/x").acquire()


async def test_an_election_has_one_leader_and_the_next_takes_over(tmp_path):
    async with grove(tmp_path) as three:
        one, two, third = three.trees.values()
        first = Election(await one.session(), "/election", b"one")
        second = Election(await two.session(), "/election", b"two")
        seen = []

        async def observe():
            async for leader in Election(await third.session(), "/election", b"").leaders():
                seen.append(leader)

        observing = asyncio.ensure_future(observe())
        term = await first.campaign()
        assert first.is_leading
        campaigning = asyncio.ensure_future(second.campaign())
        assert await second.leader() == b"one"
        await until(lambda: seen and seen[-1] == b"one")
        await first.resign()
        assert await campaigning > term
        assert not first.is_leading
        assert second.term > term
        await until(lambda: seen[-1] == b"two")
        observing.cancel()


async def test_a_watch_misses_nothing_when_it_continues_on_another_replica(tmp_path):
    async with grove(tmp_path) as three:
        lost = await three.leader()
        writer = next(tree for node_id, tree in three.trees.items() if node_id != lost)
        other = next(tree for node_id, tree in three.trees.items() if node_id not in (lost,) and tree is not writer)
        start, seen = writer.position, []

        async def watch(tree, since):
            async for change in tree.changes("/watched", since=since):
                seen.append(change)

        async def write():
            await writer.create("/watched")
            for number in range(60):
                await writer.create(f"/watched/{number}")
                await writer.create(f"/elsewhere-{number}")
            await writer.delete("/watched/7")

        writing = asyncio.ensure_future(write())
        watching = asyncio.ensure_future(watch(three.trees[lost], start))
        await until(lambda: len(seen) > 5)
        watching.cancel()
        await three.lose(lost)
        watching = asyncio.ensure_future(watch(other, seen[-1].position))
        await writing
        await until(lambda: seen[-1].kind == "deleted")
        watching.cancel()
        expected = ["/watched", *(f"/watched/{number}" for number in range(60)), "/watched/7"]
        assert [change.path for change in seen] == expected
        with pytest.raises(ChangesLostError):
            other.replica.read_local(lambda machine: machine.changes_since(-1))


async def test_a_counter_loses_nothing_through_the_loss_of_a_leader(tmp_path):
    async with grove(tmp_path) as three:
        lost = await three.leader()
        counters = [Counter(tree, "/n") for node_id, tree in three.trees.items() if node_id != lost]
        sums = []

        async def add(counter):
            for _ in range(40):
                sums.append(await counter.add())

        adding = [asyncio.ensure_future(add(counter)) for counter in counters]
        await until(lambda: len(sums) > 10)
        await three.lose(lost)
        await asyncio.gather(*adding)
        assert sorted(sums) == list(range(1, 81))
        assert await counters[0].value() == 80


async def test_a_queue_gives_each_item_to_one(tmp_path):
    async with grove(tmp_path) as three:
        one, two, third = (Queue(tree, "/q") for tree in three.trees.values())
        getting = [asyncio.ensure_future(queue.get()) for queue in (one, two) for _ in range(5)]
        for number in range(10):
            await third.put(b"%d" % number)
        assert sorted(await asyncio.gather(*getting)) == [b"%d" % number for number in range(10)]
        with pytest.raises(TimeoutError):
            await one.get(timeout_s=0.05)
        await one.put(b"a")
        await two.put(b"b")
        assert await third.size() == 2
        assert [await third.get(), await third.get()] == [b"a", b"b"]


async def test_a_barrier_begins_and_ends_together_round_after_round(tmp_path):
    async with grove(tmp_path) as three:
        inside, rounds = [], []

        async def take_part(tree):
            barrier = Barrier(await tree.session(), "/barrier", 3)
            for number in range(3):
                async with barrier:
                    inside.append(number)
                    rounds.append(number)
                assert inside.count(number) == 3

        await asyncio.gather(*(take_part(tree) for tree in three.trees.values()))
        assert rounds == [0] * 3 + [1] * 3 + [2] * 3
        alone = Barrier(await three.trees[1].session(), "/barrier", 3)
        with pytest.raises(TimeoutError):
            await alone.enter(timeout_s=0.1)
        await three.trees[2].wait_for(lambda machine: not machine.children("/barrier"), timeout_s=30)


def test_the_api_for_threads(tmp_path):
    with SyncTree(tmp_path, config=CONFIG) as tree:
        tree.create("/a", b"1")
        assert tree.set("/a", b"2") == 1
        assert tree.get("/a").data == b"2"
        assert tree.children("/") == ["a"]
        changes = tree.changes(since=0)
        assert [next(changes).kind, next(changes).kind] == ["created", "changed"]
        with tree.session() as session:
            lock = session.lock("/lock", b"me")
            with lock as token:
                assert (lock.token, lock.is_held, lock.holder()) == (token, True, b"me")
            assert not lock.is_held
            election = session.election("/election", b"me")
            assert election.campaign() == election.term
            assert (election.is_leading, election.leader()) == (True, b"me")
            election.resign()
            barrier = session.barrier("/barrier", 1)
            barrier.enter(timeout_s=30)
            barrier.leave(timeout_s=30)
            tree.create("/mine", session=session)
            assert session.is_alive
        assert tree.find("/mine") is None
        assert [tree.counter("/n").add(2), tree.counter("/n").value()] == [2, 2]
        queue = tree.queue("/q")
        queue.put(b"item")
        assert (queue.size(), queue.get()) == (1, b"item")
        tree.delete("/a")
        assert tree.wait_for(lambda machine: not machine.exists("/a"), timeout_s=30)
    tree.close()
