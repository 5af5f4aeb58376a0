"""The end of a simulated process during an operation."""


class CrashedError(BaseException):
    """The process ends here. It is a BaseException, so that no handler of the code under test continues after it."""
