"""The end of a simulated process in the middle of what it does."""


class CrashedError(BaseException):
    """The process is to end here. No handler of the code under test may take it for an error and go on."""
