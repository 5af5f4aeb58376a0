"""The roles of a KRaft replica and the table of transitions between them (KIP-595, KIP-996, `QuorumState`).

One mapping serves the code, which refuses any other step, a test that walks over every pair, and ARCHITECTURE.md:
`python -m klamm.raft.election.roles` prints it.
"""

from enum import Enum
from typing import Final


class Role(Enum):
    """The role of a replica in its epoch. An observer (not a voter) is only ever Unattached or Follower."""

    UNATTACHED = "Unattached"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    LEADER = "Leader"
    FOLLOWER = "Follower"
    RESIGNED = "Resigned"


U, P, C, L, F, R = Role

NEXT_ROLES: Final[dict[Role, frozenset[Role]]] = {
    U: frozenset({U, P, F}),
    P: frozenset({U, P, C, F}),  # the only way to C: a campaign starts with a pre-vote (KIP-996)
    C: frozenset({U, P, L, F}),
    L: frozenset({U, F, R}),  # never L -> C: a leader must resign before it may campaign
    F: frozenset({U, P, F}),
    R: frozenset({U, P, F}),  # P: a sole voter that restarts as its own last leader
}

# Never P or L: a restarted leader resigns first, so that a tail it lost cannot be written twice in one epoch.
START_ROLES: Final[frozenset[Role]] = frozenset({U, C, F, R})

OBSERVER_ROLES: Final[frozenset[Role]] = frozenset({U, F})

# Entering these changes what quorum-state holds. Resigned and Prospective do not, but for a vote given (P -> P).
DURABLE_ROLES: Final[frozenset[Role]] = frozenset({U, C, L, F})

REASONS: Final[dict[tuple[Role, Role], str]] = {
    (U, U): "a higher epoch without a leader; a vote given",
    (U, P): "the election timeout passed (voters)",
    (U, F): "the leader of this or a higher epoch is known",
    (P, U): "the pre-vote was lost and no leader is known; a higher epoch without a leader",
    (P, P): "a vote given: the pre-vote starts again",
    (P, C): "a majority granted the pre-vote; a voter knows no pre-vote (epoch + 1)",
    (P, F): "the pre-vote was lost and the leader is still known; a leader is known",
    (C, U): "a higher epoch without a leader",
    (C, P): "the election timeout passed",
    (C, L): "a majority granted the vote",
    (C, F): "the leader of this or a higher epoch is known",
    (L, U): "a higher epoch without a leader",
    (L, F): "the leader of a higher epoch is known",
    (L, R): "shutdown, resign(), no majority fetched in time, or no voter any more",
    (F, U): "a higher epoch without a leader",
    (F, P): "the fetch timeout passed (voters)",
    (F, F): "the leader of a higher epoch, or more endpoints of the same leader",
    (R, U): "the election timeout passed (epoch + 1); a higher epoch without a leader",
    (R, P): "a sole voter that was its own last leader starts",
    (R, F): "the leader of a higher epoch is known",
}


def is_durable_step(before: Role, after: Role) -> bool:
    """Whether the transition must be durable in quorum-state before anything that depends on it leaves the node."""
    return after in DURABLE_ROLES or (before, after) == (P, P)


def markdown_table() -> str:
    """The table as Markdown, a row for each allowed step; the last column says whether quorum-state is written."""
    lines = ["| from | to | because | durable |", "|---|---|---|---|"]
    for before in Role:
        for after in Role:
            if after in NEXT_ROLES[before]:
                durable = "yes" if is_durable_step(before, after) else "no"
                lines.append(f"| {before.value} | {after.value} | {REASONS[before, after]} | {durable} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown_table())
