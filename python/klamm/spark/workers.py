"""Selects the Python interpreter of Spark's workers."""

from __future__ import annotations

import os
import sys
from typing import Final

_VARIABLE: Final = "PYSPARK_PYTHON"
_CONF: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")


def use_this_python() -> None:
    """Make Spark's workers on this machine use this interpreter, unless the user has chosen one.

    PySpark uses the `python3` of the PATH. If a job is started with the `python` of an environment, its workers would
    run without that environment. The setting applies to queries planned from now on. Executors on other machines are
    not changed, because they may not have this path. No effect if this process has no session with a JVM (Spark
    Connect).
    """
    # Not imported: Spark's workers call this too, and need no SparkContext.
    module = sys.modules.get("pyspark.core.context")
    context = None if module is None else module.SparkContext._active_spark_context
    if context is None or _VARIABLE in os.environ or not sys.executable:
        return
    conf = context.getConf()
    if context.master.startswith("local") and not any(conf.contains(key) for key in _CONF):
        context.pythonExec = sys.executable
