"""Checks of identities: cluster, node and directory ids, and the voters."""

from __future__ import annotations

from collections.abc import Iterator

from klamm.cli.doctor.facts import Directory, Facts
from klamm.cli.doctor.findings import Finding, error, warning
from klamm.protocol.uuids import uuid_text


def check_clusters(facts: Facts) -> Iterator[Finding]:
    """All nodes have the same cluster id."""
    found: dict[str, list[str]] = {}
    for contact in facts.contacts:
        if contact.cluster_id is not None:
            found.setdefault(contact.cluster_id, []).append(contact.name)
    for directory in facts.directories:
        if directory.meta is not None:
            found.setdefault(directory.meta.cluster_id, []).append(directory.name)
    if len(found) > 1:
        who = "; ".join(f"{cluster_id}: {', '.join(names)}" for cluster_id, names in sorted(found.items()))
        yield error(
            "cluster-ids-differ",
            f"these belong to different clusters, and refuse each other: {who}",
            "correct the addresses, or format the new node with the cluster's id (klamm storage format -t ID)",
        )


def check_node_ids(facts: Facts) -> Iterator[Finding]:
    """node.id of the configuration and of the directory are equal, and no two directories have the same node id."""
    owners: dict[int, Directory] = {}
    for directory in facts.directories:
        meta, config = directory.meta, directory.config
        if meta is None:
            continue
        if config is not None and config.node_id != meta.node_id:
            yield error(
                "node-id-differs",
                f"{config.file} has node.id={config.node_id}, but {directory.path} belongs to node {meta.node_id}",
                f"set node.id={meta.node_id}, or correct log.dirs",
            )
        other = owners.setdefault(meta.node_id, directory)
        if other is not directory:
            yield error(
                "node-id-twice",
                f"{other.path} and {directory.path} both belong to node {meta.node_id}",
                "two nodes with the same id vote twice: stop one of them, and format it with another id",
            )


def check_directory_ids(facts: Facts) -> Iterator[Finding]:
    """A voter is identified by its directory as well: a replaced disk is another voter (KIP-853)."""
    owners: dict[bytes, Directory] = {}
    voters = {voter.key.id: voter for voter in facts.voters()}
    for directory in facts.directories:
        meta = directory.meta
        if meta is None or meta.directory_id is None:
            continue
        other = owners.setdefault(meta.directory_id, directory)
        if other is not directory:
            yield error(
                "directory-id-twice",
                f"{other.path} and {directory.path} have the same directory.id: one is a copy of the other",
                "reformat the copy",
            )
        voter = voters.get(meta.node_id)
        expected = None if voter is None else voter.key.directory_id
        if expected is not None and expected != meta.directory_id:
            yield error(
                "directory-id-differs",
                f"voter {meta.node_id} has directory id {uuid_text(expected)}, but {directory.path} has "
                f"{uuid_text(meta.directory_id)}: its disk was replaced or reformatted, so it has no vote",
                f"klamm quorum remove {meta.node_id} --directory-id {uuid_text(expected)}, then klamm quorum add",
            )


def check_voters(facts: Facts) -> Iterator[Finding]:
    """All nodes have the same static voters; warns of controllers that are not voters."""
    lists = [(one.config.file, dict(one.config.voters)) for one in facts.directories if one.config is not None]
    static = [(file, voters) for file, voters in lists if voters]
    for file, voters in static[1:]:
        if voters != static[0][1]:
            yield error(
                "voters-differ",
                f"controller.quorum.voters of {file} differs from that of {static[0][0]}",
                "make it the same on every node, brokers too, and restart the one that was wrong",
            )
    ids = {voter.key.id for voter in facts.voters()}
    for directory in facts.directories:
        config = directory.config
        if config is not None and config.is_controller and ids and config.node_id not in ids:
            yield warning(
                "not-a-voter",
                f"controller {config.node_id} is no voter: the voters are {sorted(ids)}",
                "klamm quorum add, or with static voters controller.quorum.voters on every node",
            )
