"""Randomness as a value: a seeded generator, so that a core draws the same when its inputs are the same."""

_MASK = (1 << 64) - 1


class Rng:
    """SplitMix64 (Steele, Lea, Flood 2014): small, fast, and good enough to spread election time-outs."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, bound: int) -> int:
        """A number in `[0, bound)`; 0 when `bound` is 1 or less."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return (mixed ^ (mixed >> 31)) % max(bound, 1)
