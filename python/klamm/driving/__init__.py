"""How a driver runs a core.

A core (of raft, the controller, a coordinator's shard, the broker's life cycle) decides and does no I/O:

- Events go in: `on_<event>(now_ms, ...)`. The time is one of their arguments.
- Effects come out, as a list that is to be carried out in order. An effect is a frozen value with slots
  (`klamm.protocol.value.Value`), named for what is to be done.
- `deadline_ms` says when to call it if nothing else happens.

A driver gives the core an event, carries out the effects with a `match`, and arms its timer. `clock` is the only way in
which drivers read the clock and arm timers; `deadlines` has one timer for many time-outs, and `running_time` detects
that the process did not run.
"""
