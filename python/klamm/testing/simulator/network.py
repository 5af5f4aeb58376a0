"""Messages in flight: lost, duplicated, delayed, cut off, or refused if no process listens at the port."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from klamm.raft.events import PeerRefused
from klamm.testing.simulator import descriptions as words
from klamm.testing.simulator.connections import ANY_PORT
from klamm.testing.simulator.cuts import describe_cut, draw_cut

if TYPE_CHECKING:
    from klamm.testing.simulator.connections import Dialed
    from klamm.testing.simulator.envelope import Envelope
    from klamm.testing.simulator.simulated_replica import SimulatedReplica
    from klamm.testing.simulator.simulation import Simulation

RESEND_US = 1_000_000  # for requests without a response


class Network:
    """Carries the messages between replicas; the simulation's random numbers and faults decide their fate."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.cut: set[tuple[int, int]] = set()  # (from, to) that messages do not pass

    def send(self, envelope: Envelope) -> None:
        """Send a message, or lose it."""
        simulation = self._simulation
        faults, rng = simulation.faults, simulation.rng
        if (envelope.source, envelope.target) in self.cut or rng.random() < faults.drop_chance:
            simulation.say(f"lost: {words.of_envelope(envelope)}" if simulation.trace is not None else "")
            self._maybe_notice_loss(envelope)
            return
        copies = 2 if rng.random() < faults.duplicate_chance and envelope.connection is None else 1
        for _ in range(copies):
            delay_us = rng.randrange(1_000_000 if rng.random() < faults.slow_message_chance else faults.delay_us_max)
            simulation.at(50 + delay_us, partial(self._deliver, envelope))

    def cut_off(self, node_id: int) -> set[tuple[int, int]]:
        """Drop all messages from and to that replica; returns the cut links."""
        others = [other for other in self._simulation.replicas if other != node_id]
        self.cut = {pair for other in others for pair in ((other, node_id), (node_id, other))}
        return self.cut

    def change_partition(self) -> None:
        """Heal, split into two parts, cut one replica off, or cut single directions."""
        self.cut = draw_cut(list(self._simulation.replicas), self._simulation.rng)
        self._simulation.say(describe_cut(self.cut))

    def dial(self, asker: SimulatedReplica, node_id: int, port: int, on_dialed: Dialed) -> None:
        """Try to connect: the process accepts, its host refuses, or there is no reply."""
        simulation, target = self._simulation, self._simulation.replicas[node_id]
        faults, rng = simulation.faults, simulation.rng
        again = simulation.while_alive(asker, lambda: self.dial(asker, node_id, port, on_dialed))
        life: int | None = None
        is_lost = (asker.id, node_id) in self.cut or rng.random() < faults.drop_chance
        if not is_lost and target.is_up and port in (ANY_PORT, target.port):
            life = target.life
        elif is_lost or not target.is_host_up or rng.random() >= faults.refuse_chance:
            simulation.at(RESEND_US, again)
            return
        delay_us = 50 + rng.randrange(faults.delay_us_max)
        simulation.at(delay_us, simulation.while_alive(asker, lambda: self._end_dial(asker, target, life, on_dialed)))

    def _end_dial(self, asker: SimulatedReplica, target: SimulatedReplica, life: int | None, on_dialed: Dialed) -> None:
        if life is None:
            self._simulation.say(f"{asker.id} is refused by {target.id}")
        on_dialed(life)

    def _deliver(self, envelope: Envelope) -> None:
        simulation = self._simulation
        target = simulation.replicas[envelope.target]
        if not target.is_reached_by(envelope):
            self._refuse(envelope, target)
            return
        if simulation.trace is not None:
            simulation.say(f"arrives: {words.of_envelope(envelope)}")
        simulation.step(target, partial(target.receive, envelope))

    def _refuse(self, envelope: Envelope, target: SimulatedReplica) -> None:
        """No process listens there: a running host refuses the connection at once."""
        simulation = self._simulation
        asker = simulation.replicas.get(envelope.source)
        is_refused = target.is_host_up and simulation.rng.random() < simulation.faults.refuse_chance
        if envelope.response is not None or asker is None or not is_refused:
            self._maybe_notice_loss(envelope)
            return

        def be_refused() -> None:
            simulation.say(f"{asker.id} is refused by {target.id}")
            asker.step(PeerRefused(target.id))

        delay_us = 50 + simulation.rng.randrange(simulation.faults.delay_us_max)
        if envelope.connection is None:
            simulation.at(delay_us, simulation.while_alive(asker, be_refused))
        simulation.at(delay_us, partial(self._fail_request, envelope))

    def _maybe_notice_loss(self, envelope: Envelope) -> None:
        """A sender may notice that its connection broke, or wait for its timeout."""
        simulation = self._simulation
        if simulation.rng.random() < 0.5:
            simulation.at(
                50 + simulation.rng.randrange(simulation.faults.delay_us_max), partial(self._fail_request, envelope)
            )

    def _fail_request(self, envelope: Envelope) -> None:
        simulation = self._simulation
        asker = simulation.replicas[envelope.source if envelope.response is None else envelope.target]
        if asker.is_up:
            simulation.step(asker, lambda: asker.fail_request(envelope))
