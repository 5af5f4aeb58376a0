"""Consume, transform, produce with three nodes and copiers in processes that are killed, paused and cut off."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Final

import pytest

from tests.support.transaction_life import VARIANTS, Variant, live

KILLS_IN_SLOW: Final = 60
SEED: Final = int(os.environ.get("KLAMM_HISTORY_SEED", str(random.SystemRandom().randrange(1 << 30))))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_each_record_is_copied_once_with_its_offset(tmp_path: Path, variant: Variant) -> None:
    live(tmp_path / "cluster", variant, SEED, KILLS_IN_SLOW)
