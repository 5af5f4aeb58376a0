"""`meta.properties`: the cluster and node that a directory belongs to (`MetaProperties`)."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from klamm._engine.quorum import StorageError
from klamm.config import properties
from klamm.protocol.uuids import parse_uuid, uuid_text
from klamm.protocol.value import Value

FILE_NAME: Final = "meta.properties"
VERSION: Final = 1

_RESERVED_BELOW: Final = 100


class MetaProperties(Value):
    """One file. `directory_id` is None in directories older than Apache Kafka 3.7, which get one at start."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None

    def render(self, comments: Sequence[str] = ()) -> str:
        """The file's text, version 1."""
        written = {"version": str(VERSION), "cluster.id": self.cluster_id, "node.id": str(self.node_id)}
        if self.directory_id is not None:
            written["directory.id"] = uuid_text(self.directory_id)
        return properties.render(written, comments)


class Ensemble(Value):
    """The directories of a node by state: formatted, empty (no file), or failed, with the reason."""

    formatted: Mapping[Path, MetaProperties]
    empty: Sequence[Path]
    failed: Mapping[Path, str]


def is_reserved(id_bytes: bytes) -> bool:
    """Whether an id is reserved and cannot be a directory's (KIP-858, `DirectoryId.reserved`)."""
    return int.from_bytes(id_bytes, "big") < _RESERVED_BELOW


def parse(text: str) -> MetaProperties:
    """The file's content. Raises ValueError with the problem."""
    found = properties.parse(text)
    version = found.get("version", "0" if "broker.id" in found else None)
    if version is None:
        raise ValueError("it has no version")
    if not version.isdecimal():
        raise ValueError(f"version={version} is not a number")
    if version == "0":
        raise ValueError("version 0 is of a ZooKeeper-mode broker")
    if version != str(VERSION):
        raise ValueError(f"version {version} is newer than this klamm, which reads version {VERSION}")
    cluster_id, node_id = found.get("cluster.id"), found.get("node.id")
    if cluster_id is None or node_id is None:
        raise ValueError("cluster.id or node.id is missing")
    if not node_id.isdecimal():
        raise ValueError(f"node.id={node_id} is not a number")
    directory_id = found.get("directory.id")
    return MetaProperties(cluster_id, int(node_id), None if directory_id is None else parse_uuid(directory_id))


def message_of(error: OSError) -> str:
    """What failed, with the file if it is known, and what to do about a port that is in use."""
    text = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        text += "; stop what listens there, or choose another port (--port, or the key listeners)"
    return text if error.filename is None else f"{error.filename}: {text}"


def load(directories: Sequence[Path]) -> Ensemble:
    """The content of each directory. Raises StorageError for an invalid file; I/O errors are `failed`."""
    formatted: dict[Path, MetaProperties] = {}
    empty: list[Path] = []
    failed: dict[Path, str] = {}
    for directory in directories:
        file = directory / FILE_NAME
        try:
            formatted[directory] = parse(properties.decode(file.read_bytes()))
        except FileNotFoundError:
            empty.append(directory)
        except OSError as error:
            failed[directory] = message_of(error)
        except ValueError as error:
            raise StorageError(f"{file}: {error}. Correct it, or restore it from a copy") from None
    return Ensemble(formatted, empty, failed)


def verify(ensemble: Ensemble, node_id: int, cluster_id: str | None = None) -> None:
    """All directories must be of one cluster, of this node, and each its own. Raises StorageError."""
    owners: dict[bytes, Path] = {}
    first: Path | None = None
    for directory, meta in ensemble.formatted.items():
        file = directory / FILE_NAME
        if cluster_id is None:
            cluster_id, first = meta.cluster_id, directory
        if meta.cluster_id != cluster_id:
            whose = "asked for" if first is None else f"that {first} belongs to"
            raise StorageError(
                f"{file}: cluster.id is {meta.cluster_id}, but {cluster_id} is the one {whose}; "
                "point log.dirs at directories of one cluster"
            )
        if meta.node_id != node_id:
            raise StorageError(
                f"{file}: node.id is {meta.node_id}, but the configuration says node.id={node_id}; "
                f"set node.id={meta.node_id}, or use other directories for a new node"
            )
        _verify_directory_id(directory, meta.directory_id, owners)


def _verify_directory_id(directory: Path, directory_id: bytes | None, owners: dict[bytes, Path]) -> None:
    if directory_id is None:
        return
    if is_reserved(directory_id):
        raise StorageError(f"{directory / FILE_NAME}: directory.id {uuid_text(directory_id)} is reserved")
    other = owners.setdefault(directory_id, directory)
    if other != directory:
        raise StorageError(
            f"{directory} and {other} have the same directory.id {uuid_text(directory_id)}: one is a copy of the other"
        )
