"""What a process that is a node, and nobody's guest, does so as to serve sooner."""

from __future__ import annotations

import gc
import sys


def begin() -> None:
    """To be called before anything dear is imported."""
    # What a start makes stays: a collector that goes over it again and again costs a tenth of the time.
    gc.disable()
    if "ssl" not in sys.modules and "asyncio" not in sys.modules:
        # asyncio does without OpenSSL where there is none; here its streams are not used, and TLS is the engine's.
        sys.modules["ssl"] = None  # type: ignore[assignment]
        import asyncio  # noqa: F401

        del sys.modules["ssl"]


def settle() -> None:
    """To be called when the node serves, or will not: from now on garbage is collected, among what comes."""
    gc.freeze()
    gc.enable()
