"""The versions of PySpark that the data source supports: those of the extra `klamm[spark]`."""

from __future__ import annotations

import re
from typing import Final

PYSPARK_MIN: Final = (4, 2)
"""The first version with Arrow writers for streams and admission control for Python sources."""
PYSPARK_BELOW: Final = (5,)


def check_pyspark() -> None:
    """Raise ImportError if another PySpark is installed; the message names both versions and the way out."""
    import pyspark

    installed = pyspark.__version__
    release = tuple(map(int, re.findall(r"\d+", installed)[:2]))
    if not PYSPARK_MIN <= release < PYSPARK_BELOW:
        text = (
            f"klamm's Spark source works with PySpark {_text(PYSPARK_MIN)} or newer, below {_text(PYSPARK_BELOW)}; "
            f"{installed} is installed: pip install 'klamm[spark]'"
        )
        raise ImportError(text, name="pyspark")


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
