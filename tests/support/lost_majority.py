"""The directories of three klamm voters, for tests that lose the second and third."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import klamm
from klamm._engine.quorum import MetadataLog
from klamm.formats import meta_properties
from klamm.formats.directories import METADATA_FOLDER, new_directory_id
from klamm.formats.meta_properties import MetaProperties
from klamm.protocol.generated.metadata_records import ConfigRecord, encode
from klamm.raft.election.election_state import ElectionState
from klamm.raft.election.election_state import encode as encode_election
from klamm.raft.log import control_records as control
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VoterSet

IDS = (1, 2, 3)
TOPICS = ("before", "orders")


def make_three(folder: Path, kraft_version: int) -> list[Path]:
    """Log directories of nodes 1, 2, 3. Node 2's log is one record longer than node 1's, node 3's one record shorter.

    The voters have endpoints where nothing listens: ports 1, 2 and 3.
    """
    first = folder / "node-1"
    with klamm.Cluster(first) as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic)
    found = [first, folder / "node-2", folder / "node-3"]
    metas = [_meta(first, 1)]
    for node_id, directory in zip(IDS[1:], found[1:], strict=True):
        (directory / METADATA_FOLDER).parent.mkdir()
        shutil.copytree(first / METADATA_FOLDER, directory / METADATA_FOLDER)
        meta = MetaProperties(metas[0].cluster_id, node_id, new_directory_id())
        (directory / meta_properties.FILE_NAME).write_text(meta.render())
        metas.append(meta)
    voters = VoterSet.of(
        Voter(ReplicaKey(meta.node_id, meta.directory_id), (Endpoint("CONTROLLER", "localhost", meta.node_id),))
        for meta in metas
    )
    for directory, extra in zip(found, (1, 2, 0), strict=True):
        _append(directory, kraft_version, voters, extra)
    return found


def _meta(directory: Path, node_id: int) -> MetaProperties:
    meta = meta_properties.load([directory]).formatted[directory]
    assert meta.node_id == node_id
    return meta


def _append(directory: Path, kraft_version: int, voters: VoterSet, extra: int) -> None:
    """What a leader of three voters writes, followed by `extra` configs."""
    log = open_log(directory)
    epoch, now_ms = log.last_epoch + 1, time.time_ns() // 1_000_000
    records = [(control.LEADER_CHANGE, control.encode_leader_change(2, voters.ids, voters.ids))]
    if kraft_version > 0:
        records.append((control.KRAFT_VERSION, control.encode_kraft_version(kraft_version)))
        records.append((control.KRAFT_VOTERS, control.encode_voters(voters)))
    log.append_control(records, epoch, now_ms)
    for at in range(extra):
        record = ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value=str(1000 + at))
        log.append([encode(record, 0)], epoch, now_ms)
    log.close()
    state = encode_election(ElectionState(epoch, 2), kraft_version, voters.ids)
    (directory / METADATA_FOLDER / "quorum-state").write_bytes(state)


def open_log(directory: Path) -> MetadataLog:
    """Open the log of a directory as a node does."""
    return MetadataLog(directory / METADATA_FOLDER, segment_bytes=1 << 30, segment_ms=1 << 40, now_ms=0)


def contents(directories: Sequence[Path]) -> dict[Path, bytes]:
    """The content of every file in the folder."""
    return {path: path.read_bytes() for folder in directories for path in folder.rglob("*") if path.is_file()}
