"""What the cleaner keeps, besides the guards that the engine knows."""

from klamm.testing.simulator.brokers import compaction


def tombstones_are_removed_at_once(patch):
    """A tombstone stays for delete.retention.ms after its log was cleaned (KIP-534)."""
    draw = compaction.draw

    def careless(rng):
        plan = draw(rng)
        return plan._replace(configs={**plan.configs, "delete.retention.ms": "0"}, retention_ms=5_000)

    patch.setattr(compaction, "draw", careless)
