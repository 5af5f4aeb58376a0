"""Messages on their way: lost, doubled, late, cut off, or refused where no process listens at that port."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from klamm.raft.events import PeerRefused
from klamm.testing.simulator import descriptions as words
from klamm.testing.simulator.connections import ANY_PORT

if TYPE_CHECKING:
    from klamm.testing.simulator.connections import Dialed
    from klamm.testing.simulator.envelope import Envelope
    from klamm.testing.simulator.simulated_replica import SimulatedReplica
    from klamm.testing.simulator.world import World

RESEND_US = 1_000_000  # of what nothing came back for


class Network:
    """Takes what replicas send each other; the world's generator and faults decide what becomes of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cut: set[tuple[int, int]] = set()  # (from, to) that messages do not pass

    def send(self, envelope: Envelope) -> None:
        """Put a message on its way, or lose it."""
        world = self._world
        faults, rng = world.faults, world.rng
        if (envelope.source, envelope.target) in self.cut or rng.random() < faults.drop_chance:
            world.say(f"lost: {words.of_envelope(envelope)}" if world.trace is not None else "")
            self._maybe_notice_loss(envelope)
            return
        copies = 2 if rng.random() < faults.duplicate_chance and envelope.connection is None else 1
        for _ in range(copies):
            delay_us = rng.randrange(1_000_000 if rng.random() < faults.slow_message_chance else faults.delay_us_max)
            world.at(50 + delay_us, partial(self._deliver, envelope))

    def cut_off(self, node_id: int) -> set[tuple[int, int]]:
        """Let nothing pass from or to that replica; returns what is cut."""
        others = [other for other in self._world.replicas if other != node_id]
        self.cut = {pair for other in others for pair in ((other, node_id), (node_id, other))}
        return self.cut

    def change_partition(self) -> None:
        """Heal, split in two, cut one replica off, or cut single directions."""
        ids, rng = list(self._world.replicas), self._world.rng
        kind = rng.randrange(4)
        if kind == 0:
            self.cut = set()
        elif kind == 1:
            side = {node_id for node_id in ids if rng.random() < 0.5}
            self.cut = {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
        elif kind == 2:
            alone = rng.choice(ids)
            self.cut = {(a, b) for a in ids for b in ids if a != b and alone in (a, b)}
        else:
            self.cut = {(a, b) for a in ids for b in ids if a != b and rng.random() < 0.3}
        self._world.say("messages pass " + ("everywhere" if not self.cut else f"not {sorted(self.cut)}"))

    def dial(self, asker: SimulatedReplica, node_id: int, port: int, on_dialed: Dialed) -> None:
        """Let a process try to connect: what listens there accepts, its host refuses, or nothing comes back."""
        world, target = self._world, self._world.replicas[node_id]
        faults, rng = world.faults, world.rng
        again = world.while_alive(asker, lambda: self.dial(asker, node_id, port, on_dialed))
        life: int | None = None
        is_lost = (asker.id, node_id) in self.cut or rng.random() < faults.drop_chance
        if not is_lost and target.is_up and port in (ANY_PORT, target.port):
            life = target.life
        elif is_lost or not target.is_host_up or rng.random() >= faults.refuse_chance:
            world.at(RESEND_US, again)
            return
        delay_us = 50 + rng.randrange(faults.delay_us_max)
        world.at(delay_us, world.while_alive(asker, lambda: self._end_dial(asker, target, life, on_dialed)))

    def _end_dial(self, asker: SimulatedReplica, target: SimulatedReplica, life: int | None, on_dialed: Dialed) -> None:
        if life is None:
            self._world.say(f"{asker.id} is refused by {target.id}")
        on_dialed(life)

    def _deliver(self, envelope: Envelope) -> None:
        world = self._world
        target = world.replicas[envelope.target]
        if not target.is_reached_by(envelope):
            self._refuse(envelope, target)
            return
        if world.trace is not None:
            world.say(f"arrives: {words.of_envelope(envelope)}")
        world.step(target, partial(target.receive, envelope))

    def _refuse(self, envelope: Envelope, target: SimulatedReplica) -> None:
        """No process listens there: a host that is up refuses the connection at once."""
        world = self._world
        asker = world.replicas.get(envelope.source)
        is_refused = target.is_host_up and world.rng.random() < world.faults.refuse_chance
        if envelope.response is not None or asker is None or not is_refused:
            self._maybe_notice_loss(envelope)
            return

        def be_refused() -> None:
            world.say(f"{asker.id} is refused by {target.id}")
            asker.step(PeerRefused(target.id))

        delay_us = 50 + world.rng.randrange(world.faults.delay_us_max)
        if envelope.connection is None:
            world.at(delay_us, world.while_alive(asker, be_refused))
        world.at(delay_us, partial(self._fail_request, envelope))

    def _maybe_notice_loss(self, envelope: Envelope) -> None:
        """A sender may learn that its connection broke, or wait for its time-out."""
        world = self._world
        if world.rng.random() < 0.5:
            world.at(50 + world.rng.randrange(world.faults.delay_us_max), partial(self._fail_request, envelope))

    def _fail_request(self, envelope: Envelope) -> None:
        world = self._world
        asker = world.replicas[envelope.source if envelope.response is None else envelope.target]
        if asker.is_up:
            world.step(asker, lambda: asker.fail_request(envelope))
