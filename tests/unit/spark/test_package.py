"""The package without pyspark."""

from __future__ import annotations

import subprocess
import sys

import pytest

import klamm.spark


def test_options_and_offsets_need_no_pyspark() -> None:
    code = "import sys, klamm.spark, klamm.spark.options, klamm.spark.offsets; print('pyspark' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "False\n"


def test_without_pyspark_the_source_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(sys.modules, "klamm.spark.source", raising=False)
    with pytest.raises(ImportError, match=r"needs pyspark: pip install 'klamm\[spark\]'"):
        _ = klamm.spark.KlammDataSource
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = klamm.spark.Nothing  # type: ignore[attr-defined]
