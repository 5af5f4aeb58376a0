"""Formatting the directories of a node: what `klamm storage format` decides and writes (Kafka's `Formatter`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from klamm._engine.quorum import StorageError, bootstrap_checkpoint, voters_checkpoint
from klamm.config.node_config import CONTROLLER, NodeConfig, NodeConfigError
from klamm.formats import meta_properties
from klamm.formats.directories import (
    BOOTSTRAP_FILE,
    METADATA_FOLDER,
    flush_directory,
    new_directory_id,
    write_atomically,
)
from klamm.formats.meta_properties import Ensemble, MetaProperties, is_reserved
from klamm.formats.scram_credentials import parse as parse_scram
from klamm.protocol.features import (
    DEFAULTS_OF_RELEASES,
    FEATURE_DEPENDENCIES,
    KRAFT_VERSION,
    METADATA_VERSION,
    SERVED_FEATURES,
    SUPPORTED_FEATURES,
)
from klamm.protocol.generated.metadata_records import FeatureLevelRecord, MetadataRecord, encode_at
from klamm.protocol.metadata_levels import METADATA_LEVELS
from klamm.protocol.uuids import parse_uuid, uuid_text
from klamm.protocol.value import Value, field

FIRST_SNAPSHOT: Final = "00000000000000000000-0000000000.checkpoint"
SCRAM_LEVEL: Final = 11
MAX_NODE_ID: Final = 2**31 - 1
MAX_PORT: Final = 65535


class InitialController(Value):
    """One voter of `--initial-controllers`."""

    node_id: int
    host: str
    port: int
    directory_id: bytes


class FormatRequest(Value):
    """The arguments of `klamm storage format`."""

    cluster_id: str
    release_version: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    ignore_formatted: bool = False
    scram: Sequence[str] = ()
    standalone: bool = False
    initial_controllers: Sequence[InitialController] = ()
    no_initial_controllers: bool = False
    is_volatile: bool = False
    """The files need not survive a power cut: nothing is synced."""


def format_storage(config: NodeConfig, request: FormatRequest, say: Callable[[str], None] = lambda _: None) -> None:
    """Format the directories that are not yet. Raises StorageError or NodeConfigError, with nothing changed."""
    controllers = _voters(config, request)
    levels = feature_levels(request, has_dynamic_quorum=not config.voters)
    records = bootstrap_records(levels, request.scram)
    ensemble = meta_properties.load(config.all_dirs)
    meta_properties.verify(ensemble, config.node_id, request.cluster_id)
    _check_blank(ensemble, ignore_formatted=request.ignore_formatted)
    name = level_name(levels[METADATA_VERSION])
    with _Made(is_volatile=request.is_volatile) as made:
        for directory in ensemble.empty:
            say(f"Formatting {directory} with metadata.version {name}.")
            _format_directory(directory, config, request, records, controllers, made=made)
    if not ensemble.empty:
        say("All directories are formatted already.")


def format_blank(config: NodeConfig, *, is_volatile: bool = False) -> str:
    """The first start of a node without a file: format its folder with a new cluster id, which is returned."""
    cluster_id = random_cluster_id()
    format_storage(config, FormatRequest(cluster_id, is_volatile=is_volatile))
    return cluster_id


def random_cluster_id() -> str:
    """A new cluster id, 22 characters."""
    return uuid_text(new_directory_id())


def parse_controllers(text: str) -> tuple[InitialController, ...]:
    """`id@host:port:directory-id,...`; nothing between two commas is passed over. Raises NodeConfigError."""
    controllers = tuple(_parse_controller(entry.strip()) for entry in text.split(",") if entry.strip())
    if not controllers:
        raise NodeConfigError(f"--initial-controllers '{text}' names no controller")
    ids = [one.node_id for one in controllers]
    for node_id in ids:
        if ids.count(node_id) > 1:
            raise NodeConfigError(f"--initial-controllers {text}: node {node_id} is there more than once")
    return controllers


def parse_feature(text: str) -> tuple[str, int]:
    """`name=level`. Raises NodeConfigError."""
    name, equals, level = (part.strip() for part in text.partition("="))
    if not equals or not name or not level.isdecimal():
        raise NodeConfigError(f"--feature {text} is not name=level")
    return name, int(level)


def feature_levels(request: FormatRequest, *, has_dynamic_quorum: bool) -> dict[str, int]:
    """The level of every feature; features whose APIs klamm does not have yet are 0 unless requested."""
    levels = dict.fromkeys(SUPPORTED_FEATURES, 0)
    levels[METADATA_VERSION] = _metadata_level(request)
    levels[KRAFT_VERSION] = int(has_dynamic_quorum)
    for name in SERVED_FEATURES:
        level, least = DEFAULTS_OF_RELEASES[name]
        levels[name] = level if levels[METADATA_VERSION] >= least else 0
    for name, level in request.features.items():
        check_feature(name, level)
        levels[name] = level
    _check_kraft_version(levels[KRAFT_VERSION], has_dynamic_quorum=has_dynamic_quorum)
    for name, level in levels.items():
        for needed, least in FEATURE_DEPENDENCIES.get((name, level), {}).items():
            if levels[needed] < least:
                raise NodeConfigError(f"{name}={level} needs {needed} {least} or newer, not {levels[needed]}")
    return levels


def bootstrap_records(levels: Mapping[str, int], scram: Sequence[str] = ()) -> list[bytes]:
    """The cluster's bootstrap records, framed: metadata.version, other features by name, credentials (`Formatter`)."""
    level = levels[METADATA_VERSION]
    others = sorted(name for name, found in levels.items() if found and name not in (METADATA_VERSION, KRAFT_VERSION))
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name=name, feature_level=levels[name]) for name in (METADATA_VERSION, *others)
    ]
    if scram and level < SCRAM_LEVEL:
        raise NodeConfigError(f"--add-scram needs metadata.version {SCRAM_LEVEL} or newer, not {level}")
    records += [parse_scram(argument) for argument in scram]
    return [encode_at(record, level) for record in records]


def level_name(level: int) -> str:
    """The name of a level of metadata.version."""
    return next(known.name for known in METADATA_LEVELS if known.level == level)


def level_of_release(text: str) -> int:
    """The level of `4.3-IV0`, or the newest of release `4.3` or `4.3.1`. Raises NodeConfigError."""
    release = ".".join(text.partition("-")[0].split(".")[:2])
    wanted = [known for known in METADATA_LEVELS if known.name == text]
    wanted = wanted or [known for known in METADATA_LEVELS if "-" not in text and known.name.startswith(f"{release}-")]
    lowest = SUPPORTED_FEATURES[METADATA_VERSION].min_version
    if not wanted or wanted[-1].level < lowest:
        raise NodeConfigError(
            f"--release-version {text} is not known: use one from {level_name(lowest)} to {METADATA_LEVELS[-1].name}"
        )
    return wanted[-1].level


def _metadata_level(request: FormatRequest) -> int:
    if METADATA_VERSION in request.features:
        if request.release_version is not None:
            raise NodeConfigError("use --release-version instead of --feature metadata.version, not both")
        return request.features[METADATA_VERSION]
    if request.release_version is not None:
        return level_of_release(request.release_version)
    return SUPPORTED_FEATURES[METADATA_VERSION].max_version


def check_feature(name: str, level: int) -> None:
    """Raises NodeConfigError for a feature or a level that there is not."""
    if name not in SUPPORTED_FEATURES:
        raise NodeConfigError(f"--feature {name}: there are {', '.join(sorted(SUPPORTED_FEATURES))}")
    if level not in SUPPORTED_FEATURES[name]:
        raise NodeConfigError(f"--feature {name}={level}: the level must be within {SUPPORTED_FEATURES[name]}")


def _check_kraft_version(level: int, *, has_dynamic_quorum: bool) -> None:
    if level != int(has_dynamic_quorum):
        reason = "is empty" if has_dynamic_quorum else "is set"
        raise NodeConfigError(f"--feature kraft.version={level} cannot be when controller.quorum.voters {reason}")


def _voters(config: NodeConfig, request: FormatRequest) -> Sequence[InitialController]:
    """The first voters to write down; none with static voters or `--no-initial-controllers`."""
    if config.voters and (request.standalone or request.initial_controllers):
        raise NodeConfigError(
            "controller.quorum.voters is set: for --standalone or --initial-controllers replace it by "
            "controller.quorum.bootstrap.servers"
        )
    if request.initial_controllers:
        return request.initial_controllers
    if request.standalone:
        return (_standalone(config),)
    if not config.voters and CONTROLLER in config.roles and not request.no_initial_controllers:
        raise NodeConfigError(
            "controller.quorum.voters is not set on this controller: "
            "give --standalone, --initial-controllers or --no-initial-controllers"
        )
    return ()


def _standalone(config: NodeConfig) -> InitialController:
    if CONTROLLER not in config.roles:
        raise NodeConfigError("--standalone is for a controller, but process.roles has none")
    listener = config.advertised_controllers[0]
    return InitialController(config.node_id, listener.host or "localhost", listener.port, new_directory_id())


def _parse_controller(entry: str) -> InitialController:
    """An IPv6 address is in brackets; without them the host ends at the first colon, as in Apache Kafka."""
    voter, at, rest = entry.partition("@")
    if rest.startswith("["):
        host, colon, rest = rest[1:].partition("]:")
    else:
        host, colon, rest = rest.partition(":")
    port, last_colon, directory_id = rest.partition(":")
    try:
        if not (at and colon and last_colon and host and voter.isdecimal() and port.isdecimal()):
            raise ValueError("it is not id@host:port:directory-id, with an IPv6 host in brackets")
        if int(voter) > MAX_NODE_ID:
            raise ValueError(f"the node id must be within 0 and {MAX_NODE_ID}")
        if int(port) > MAX_PORT:
            raise ValueError(f"the port must be within 0 and {MAX_PORT}")
        found = parse_uuid(directory_id)
        if is_reserved(found):
            raise ValueError(f"the directory id {directory_id} is reserved")
    except ValueError as error:
        raise NodeConfigError(f"--initial-controllers {entry}: {error}") from None
    return InitialController(int(voter), host, int(port), found)


def _check_blank(ensemble: Ensemble, *, ignore_formatted: bool) -> None:
    if ensemble.formatted and not ignore_formatted:
        first = min(ensemble.formatted)
        raise StorageError(f"{first} is formatted already; --ignore-formatted skips it and formats the others")
    if ensemble.failed:
        reasons = "; ".join(f"{directory}: {reason}" for directory, reason in ensemble.failed.items())
        raise StorageError(f"cannot read every directory: {reasons}")


class _Made:
    """Files and folders created by a format; removed when the format fails."""

    def __init__(self, *, is_volatile: bool) -> None:
        self._is_volatile = is_volatile
        self._paths: list[Path] = []

    def directory(self, directory: Path) -> None:
        """With its parents; durable, as what will be in it."""
        missing = [path for path in (directory, *directory.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir()
            self._paths.append(path)
            if not self._is_volatile:
                flush_directory(path.parent)

    def file(self, path: Path, data: bytes) -> None:
        """Written at once or not at all."""
        if not path.exists():
            self._paths.append(path)
        write_atomically(path, data, is_volatile=self._is_volatile)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for path in reversed(self._paths) if error is not None else ():
            with contextlib.suppress(OSError):  # the original error is raised, which names its cause
                if path.is_dir():
                    path.rmdir()
                else:
                    path.unlink()


def _format_directory(
    directory: Path,
    config: NodeConfig,
    request: FormatRequest,
    records: Sequence[bytes],
    controllers: Sequence[InitialController],
    *,
    made: _Made,
) -> None:
    """meta.properties comes last: a directory is formatted when it is there."""
    now_ms = time.time_ns() // 1_000_000
    is_metadata = directory == config.metadata_log_dir
    own = next((one.directory_id for one in controllers if is_metadata and one.node_id == config.node_id), None)
    meta = MetaProperties(request.cluster_id, config.node_id, own or new_directory_id())
    try:
        made.directory(directory)
        made.file(directory / BOOTSTRAP_FILE, bootstrap_checkpoint(records, now_ms))
        if is_metadata and controllers:
            _write_voters(made, directory, config.controller_listener_names[0], controllers, now_ms)
        comments = ["", time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())]
        made.file(directory / meta_properties.FILE_NAME, meta.render(comments).encode())
    except OSError as error:
        raise StorageError(f"cannot format {directory}: {error.strerror or error}") from None


def _write_voters(
    made: _Made, directory: Path, listener: str, controllers: Sequence[InitialController], now_ms: int
) -> None:
    voters = [(one.node_id, one.directory_id, listener, one.host, one.port) for one in controllers]
    folder = directory / METADATA_FOLDER
    made.directory(folder)
    made.file(folder / FIRST_SNAPSHOT, voters_checkpoint(1, sorted(voters), now_ms))
    # As Apache Kafka leaves its snapshots.
    (folder / FIRST_SNAPSHOT).chmod(0o400)
