"""Which Python Spark's workers are."""

from __future__ import annotations

import os
import sys
from typing import Final

_VARIABLE: Final = "PYSPARK_PYTHON"
_CONF: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")


def use_this_python() -> None:
    """Let Spark's workers on this machine be this interpreter, unless the user has named one.

    PySpark takes the `python3` of the PATH, so that a job which an environment's own `python` runs has workers without
    that environment. It holds for what is planned from now on. Executors of other machines are left alone: the path of
    this interpreter means nothing there. Does nothing where no session of this process has a JVM (Spark Connect).
    """
    # Not imported: a worker of Spark's calls this, too, and needs no SparkContext.
    module = sys.modules.get("pyspark.core.context")
    context = None if module is None else module.SparkContext._active_spark_context
    if context is None or _VARIABLE in os.environ or not sys.executable:
        return
    conf = context.getConf()
    if context.master.startswith("local") and not any(conf.contains(key) for key in _CONF):
        context.pythonExec = sys.executable
