"""How each removed guard is noticed: the faults of the seeds that are played without it."""

from tests.simulation.broker_mutations import control

from klamm.testing.simulator.brokers.faults import BrokerFaults

SEEDS = range(1, 41)
MODULES = (control,)

CUTS = BrokerFaults(
    partition_every_us=700_000, repeat_chance=0.5, repeat_us_max=5_000_000, elect_every_us=700_000, unclean_share=0.0
)
STOPS = BrokerFaults(delay_us_max=20_000, shutdown_every_us=300_000, crash_every_us=600_000, away_us_max=20_000)
CRASHES = BrokerFaults(
    delay_us_max=20_000, slow_message_chance=0.1, crash_every_us=500_000, away_us_max=300_000, elect_every_us=500_000
)

FAULTS = {
    control.an_isr_is_changed_by_epochs_of_before: CUTS,
    control.an_inactive_broker_joins_an_isr: STOPS,
    control.a_heartbeat_of_an_earlier_life_counts: CRASHES,
}
