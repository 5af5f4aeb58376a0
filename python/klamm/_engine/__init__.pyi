"""The extension module: everything that Python calls in Rust, with a submodule for each subject.

Ids are 16 bytes, times are in ms and offsets are int64. At run time all submodules are in the file
`klamm/_engine.abi3.so`; the sources are in `rust/python/src`, in a folder or file with the submodule's name.
"""

from klamm._engine import client as client
from klamm._engine import config as config
from klamm._engine import controller as controller
from klamm._engine import groups as groups
from klamm._engine import metadata as metadata
from klamm._engine import node as node
from klamm._engine import panics as panics
from klamm._engine import protocol as protocol
from klamm._engine import quorum as quorum
from klamm._engine import records as records
from klamm._engine import simulation as simulation
from klamm._engine import spark as spark
from klamm._engine import tools as tools

__version__: str
