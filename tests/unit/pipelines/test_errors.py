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
