from __future__ import annotations

from klamm.pipelines.errors import reason

FROM_A_TASK = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent: Lost task 0.0:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
klamm.spark.data_loss.DataLossError: some data is lost: [0, 5) of orders-0
to go on with what there is, set the option failOnDataLoss to false

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:572)
Driver stacktrace:"""

A_DEAD_WORKER = """An error occurred while calling o504.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 1.0 (TID 1) (192.0.2.2 executor driver): org.apache.spark.SparkException: Python \
worker exited unexpectedly (crashed). Consider setting 'spark.python.worker.faulthandler.enabled' to 'true'.
\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1136)
Caused by: java.io.EOFException
\t... 22 more
"""
A_FULL_DISK = """An error occurred while calling o504.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 1.0 (TID 1) (10.0.0.1:4040 executor 2): java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.write(FileOutputStream.java:367)
"""


def test_a_worker_that_died_is_told_in_plain_words() -> None:
    told = reason(RuntimeError(A_DEAD_WORKER))
    assert told.startswith("a Python process of Spark's died in the middle of its work: it was killed, or crashed")
    assert "o504" not in told
    assert "memory" in told


def test_of_java_the_innermost_exception_is_told() -> None:
    assert reason(RuntimeError(A_FULL_DISK)) == "No space left on device (IOException)"
    inner = (
        A_FULL_DISK + "Caused by: java.io.IOException: /data/7 is gone\n\t... 2 more\nCaused by: java.io.EOFException\n"
    )
    assert reason(RuntimeError(inner)) == "/data/7 is gone (IOException)"
    assert reason(RuntimeError("An error occurred while calling o1.x. Trace:\nno more")).startswith("An error occurred")


def test_the_exception_of_a_task_is_found_among_the_stacks() -> None:
    assert reason(RuntimeError(FROM_A_TASK)) == (
        "some data is lost: [0, 5) of orders-0 to go on with what there is, set the option failOnDataLoss to false"
    )


def test_an_exception_without_a_text_is_named() -> None:
    told = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyboardInterrupt: \n'
    assert reason(RuntimeError(told)) == "KeyboardInterrupt"
    assert reason(ValueError()) == "ValueError"


def test_any_other_error_is_its_first_line() -> None:
    assert reason(ValueError("\nno such thing\nmore")) == "no such thing"
