from __future__ import annotations

from klamm.spark import reason

FROM_A_TASK = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent: Lost task 0.0:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
klamm.spark.reading.data_loss.DataLossError: some data is lost: [0, 5) of orders-0
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


def test_a_dead_worker_is_reported_in_plain_words() -> None:
    text = reason(RuntimeError(A_DEAD_WORKER))
    assert text.startswith("a Python process of Spark's died in the middle of its work: it was killed, or crashed")
    assert "o504" not in text
    assert "memory" in text


def test_the_innermost_java_exception_is_reported() -> None:
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
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyboardInterrupt: \n'
    assert reason(RuntimeError(text)) == "KeyboardInterrupt"
    assert reason(ValueError()) == "ValueError"


OF_A_QUERY = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nothing` cannot be resolved. Did you mean \
one of the following? [`key`, `value`]. SQLSTATE: 42703; line 1 pos 7;
'Project ['nothing]
+- OneRowRelation
"""
OF_CONNECT = """(org.apache.spark.SparkException) [PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source \
klamm: Traceback (most recent call last):
  File "source.py", line 1, in schema
klamm.spark.options.option_map.OptionError: option 'subscribe' is missing
 SQLSTATE: 38000"""


def test_names_of_spark_errors_and_sql_states_are_left_out() -> None:
    assert reason(ValueError(OF_A_QUERY)) == (
        "A column with name `nothing` cannot be resolved. Did you mean one of the following? [`key`, `value`]."
    )
    assert reason(ValueError(OF_CONNECT)) == "option 'subscribe' is missing"


def test_an_exception_raised_from_one_of_spark_has_its_reason() -> None:
    spark = type("StreamingQueryException", (Exception,), {"__module__": "pyspark.errors.exceptions.captured"})
    error = RuntimeError("the nightly job failed")
    error.__cause__ = spark(FROM_A_TASK)
    assert reason(error).startswith("some data is lost: [0, 5) of orders-0")
    assert reason(RuntimeError("of my own")) == "of my own"


def test_any_other_error_is_its_first_line() -> None:
    assert reason(ValueError("\nno such thing\nmore")) == "no such thing"
