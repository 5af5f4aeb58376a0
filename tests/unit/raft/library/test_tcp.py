"""Three replicas over sockets, in one loop; and hostile input from others."""

from __future__ import annotations

import asyncio
import struct

import pytest
from tests.support.ports import free_port
from tests.support.waiting import until

from klamm.client.peer import PeerConfig, Peers
from klamm.raft import NoLeaderError, RaftConfig, Replica, ReplicaConfig
from klamm.raft.library import calls

QUICK = RaftConfig(
    election_timeout_ms=100,
    fetch_timeout_ms=300,
    request_timeout_ms=300,
    election_backoff_max_ms=100,
    fetch_max_wait_ms=50,
)
CONFIG = ReplicaConfig(raft=QUICK, flush=False, timeout_s=30)


class Store:
    def __init__(self):
        self.values = {}

    def apply(self, command):
        key, _, value = command.partition(b"=")
        old = self.values.get(key, b"")
        self.values[key] = value
        return old

    def snapshot(self):
        return b"\n".join(b"%s=%s" % item for item in self.values.items())

    def restore(self, data):
        self.values = dict(line.split(b"=") for line in data.splitlines())


def values(store):
    return dict(store.values)


@pytest.fixture
def voters():
    return {node_id: f"127.0.0.1:{free_port()}" for node_id in (1, 2, 3)}


def replica(tmp_path, voters, node_id, **more):
    return Replica(Store(), tmp_path / str(node_id), node_id=node_id, voters=voters, config=CONFIG, **more)


async def test_replicas_over_sockets(tmp_path, voters):
    three = [replica(tmp_path, voters, node_id) for node_id in voters]
    for one in three:
        await one.start()
    assert await three[0].execute(b"a=1") == b""
    assert await three[1].execute(b"a=2") == b"1"
    assert await three[2].execute_all([b"b=%d" % n for n in range(100)]) == [b"", *(b"%d" % n for n in range(99))]
    expected = {b"a": b"2", b"b": b"99"}
    for one in three:
        assert await one.read(values) == expected
    await until(lambda: any(one.leadership.is_self for one in three))
    lost = next(one for one in three if one.leadership.is_self)
    await lost.close()
    three.remove(lost)
    assert await three[0].execute(b"c=1") == b""
    assert await three[1].read(values) == expected | {b"c": b"1"}
    observer = replica(tmp_path, voters, 9)
    await observer.start()
    assert await observer.execute(b"c=2") == b"1"
    for one in [observer, *three]:
        await one.close(timeout_s=0)


async def test_replicas_of_another_cluster_are_rejected(tmp_path, voters):
    async with replica(tmp_path, {1: voters[1]}, 1) as ours:
        await ours.execute(b"a=1")
        stranger = replica(tmp_path, {1: voters[1]}, 2, cluster="other")
        async with stranger:
            with pytest.raises(NoLeaderError):
                await stranger.execute(b"a=2", timeout_s=0.2)
        assert await ours.read(values) == {b"a": b"1"}


async def ask(address, frame):
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(frame)
    try:
        return await asyncio.wait_for(reader.read(1 << 16), 30)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def framed(body):
    return struct.pack(">i", len(body)) + body


def request(api_key, version, body=b""):
    return framed(struct.pack(">hhih", api_key, version, 7, -1) + body)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30),
        framed(b"short"),
        request(0, 3),
        request(calls.API_KEY, 1),
        request(calls.API_KEY, 0, b"\xff"),
        request(52, 2, b"\x00\xff"),
        request(1, 17, b"\x01"),
        framed(struct.pack(">hhih", calls.API_KEY, 0, 7, 30_000)),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_malformed_input_ends_only_its_connection(tmp_path, voters, frame):
    async with replica(tmp_path, {1: voters[1]}, 1) as ours:
        assert await ask(voters[1], frame) == b""
        assert await ours.execute(b"a=1") == b""


async def test_records_that_no_replica_could_apply_are_rejected(tmp_path, voters):
    async with replica(tmp_path, {1: voters[1]}, 1) as ours:
        await ours.execute(b"a=1")
        client, (host, _, port) = Peers(PeerConfig("test")), voters[1].partition(":")
        for call, status in [
            (calls.Call(calls.Kind.EXECUTE, "klamm", [b"\x07what"]), calls.Status.INVALID),
            (calls.Call(calls.Kind.EXECUTE, "other", [b"\x07what"]), calls.Status.WRONG_CLUSTER),
            (calls.Call(calls.Kind.READ_INDEX, "klamm"), calls.Status.OK),
        ]:
            answer = await client.request((host, int(port)), calls.API_KEY, 0, calls.encode_call(call))
            assert calls.decode_reply(answer).status is status
        client.close()
        assert await ours.execute(b"a=2") == b"1"


@pytest.mark.parametrize(("version", "error"), [(0, 0), (3, 0), (9, 35)])
async def test_api_versions(tmp_path, voters, version, error):
    async with replica(tmp_path, {1: voters[1]}, 1):
        answer = await ask(voters[1], request(18, version))
        assert struct.unpack_from(">ih", answer, 4) == (7, error)


async def test_an_address_in_use_is_named(tmp_path, voters):
    async with replica(tmp_path, {1: voters[1]}, 1):
        other = replica(tmp_path, {2: voters[1]}, 2)
        with pytest.raises(OSError, match=voters[1]):
            await other.start()
    with pytest.raises(ValueError, match="host:port"):
        Replica(Store(), tmp_path, voters={1: "nowhere"})


async def test_the_listener_may_differ_from_the_advertised_address(tmp_path, voters):
    async with replica(tmp_path, {1: "example.invalid:9"}, 1, listen=voters[1]) as ours:
        await until(lambda: ours.leadership.is_self)
        assert len(await ask(voters[1], request(18, 0))) > 10
