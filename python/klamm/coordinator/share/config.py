"""The settings of a share coordinator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareConfig:
    """Under Kafka's names without `share.coordinator.`; times in ms."""

    updates_per_snapshot: int = 500
    """snapshot.update.records.per.snapshot"""
    prune_interval_ms: int = 300_000
    """state.topic.prune.interval.ms"""
    cold_snapshot_interval_ms: int = 300_000
    """cold.partition.snapshot.interval.ms"""
    write_timeout_ms: int = 5_000
    batch_bytes_max: int = 1_048_588
