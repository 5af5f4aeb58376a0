"""Reads the directories of a quorum's surviving nodes. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from klamm._engine.quorum import StorageError
from klamm._engine.tools import MetadataReader
from klamm.client import ClientError
from klamm.config import properties
from klamm.config.node_config import Address, NodeConfigError, parse_address, value_of
from klamm.formats import meta_properties
from klamm.formats.directories import METADATA_FOLDER
from klamm.formats.meta_properties import MetaProperties, message_of
from klamm.metadata.errors import HistoryError
from klamm.metadata.log.history import History
from klamm.metadata.log.location import metadata_directory
from klamm.metadata.log.quorum import Quorum
from klamm.raft.election.election_state import ElectionState, QuorumStateError, decode
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.voters.voter_set import ReplicaKey

QUORUM_STATE: Final = "quorum-state"


class Survivor(NamedTuple):
    """One node's metadata directory."""

    directory: Path
    """The log directory, with meta.properties and the metadata log in it."""
    meta: MetaProperties
    end: OffsetAndEpoch
    """The end of its log."""
    last_time_ms: int
    quorum: Quorum
    """The voters and kraft.version of its log."""
    election: ElectionState
    """Its quorum-state; empty if it is missing or cannot be read."""
    problem: str | None = None
    """Why its quorum-state cannot be read."""
    loss: str | None = None
    """What a damaged log has lost: only the part before the damage counts."""
    static_voters: Mapping[int, Address] | None = None
    """controller.quorum.voters of the server.properties that was given; None if a directory was given."""

    @property
    def key(self) -> ReplicaKey:
        """The replica key of the node."""
        return ReplicaKey(self.meta.node_id, self.meta.directory_id)

    @property
    def folder(self) -> Path:
        """The folder of its metadata log."""
        return self.directory / METADATA_FOLDER


def directory_of(path: Path) -> Path:
    """The log directory of a path; see `read_survivor`. Raises ClientError."""
    try:
        directory = metadata_directory(path) if path.is_file() else path
    except HistoryError as error:
        raise ClientError(str(error)) from None
    return directory.parent if directory.name == METADATA_FOLDER else directory


def read_survivor(path: Path, *, accept_loss: bool = False) -> Survivor:
    """Read a log directory, its `__cluster_metadata-0`, or a server.properties. Raises ClientError.

    `accept_loss`: of a damaged log, use the part before the damage.
    """
    try:
        voters = _static_voters(path) if path.is_file() else None
        directory = directory_of(path)
        meta = _meta(directory)
        end, loss = _intact_end(directory / METADATA_FOLDER)
        if loss is not None and not accept_loss:
            raise ClientError(f"{loss}. Restore it from a copy; --accept-loss gives up the records that are lost")
        state = History(directory).state_at(end.offset - 1)
    except (HistoryError, StorageError) as error:
        raise ClientError(str(error)) from None
    except OSError as error:
        raise ClientError(message_of(error)) from None
    election, problem = read_election(directory / METADATA_FOLDER / QUORUM_STATE)
    return Survivor(directory, meta, end, state.timestamp_ms, state.quorum, election, problem, loss, voters)


def _intact_end(folder: Path) -> tuple[OffsetAndEpoch, str | None]:
    offset, epoch, loss = MetadataReader(folder).intact_end()
    return OffsetAndEpoch(offset, epoch), loss


def read_election(file: Path) -> tuple[ElectionState, str | None]:
    """The content of quorum-state, and its problem. A missing file is epoch 0, as at the first start."""
    try:
        return decode(file.read_bytes()), None
    except FileNotFoundError:
        return ElectionState(), None
    except OSError as error:
        return ElectionState(), message_of(error)
    except QuorumStateError as error:
        return ElectionState(), f"{file}: {error}"


def _meta(directory: Path) -> MetaProperties:
    ensemble = meta_properties.load([directory])
    if directory not in ensemble.formatted:
        reason = ensemble.failed.get(directory, "it has no meta.properties: name a node's log directory")
        raise ClientError(f"{directory}: {reason}")
    return ensemble.formatted[directory]


def _static_voters(file: Path) -> dict[int, Address]:
    try:
        given = properties.parse(properties.decode(file.read_bytes()))
        entries = value_of(given, "controller.quorum.voters")
    except (NodeConfigError, properties.PropertiesError) as error:
        raise ClientError(f"{file}: {error}") from None
    pairs = (entry.partition("@") for entry in (entries if isinstance(entries, list) else ()))
    return {int(voter): parse_address(address) for voter, _, address in pairs}
