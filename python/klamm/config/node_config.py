"""The configuration of one node: Apache Kafka's keys (its Broker Configs page), klamm's own, and derived values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from klamm._engine.config import ConfigError, ConfigKey, config_keys, find_config_key, format_config, parse_config
from klamm.config import listeners as listening
from klamm.config.listeners import Listener, ListenerError
from klamm.protocol.value import Value

ConfigValue = bool | int | float | str | list[str] | None
Address = tuple[str, int]
T = TypeVar("T")

BROKER: Final = "broker"
CONTROLLER: Final = "controller"


class NodeConfigError(ValueError):
    """A configuration that a node cannot run with. Names the key, the value and what is allowed."""


class NodeConfig(Value):
    """A node's configuration. Made by `rules.checked` from keys and values, by `sources.load` from a file and more."""

    given: Mapping[str, str]
    """The configs as they were given, including keys that klamm does not know."""
    roles: frozenset[str]
    node_id: int
    listeners: tuple[Listener, ...]
    """Everything to bind."""
    controller_listener_names: tuple[str, ...]
    advertised_brokers: tuple[Listener, ...]
    """The listeners for clients and brokers, as advertised."""
    advertised_controllers: tuple[Listener, ...]
    """The listeners for controllers, as advertised, in the order of `controller.listener.names`."""
    inter_broker_listener_name: str
    log_dirs: tuple[Path, ...]
    metadata_log_dir: Path
    voters: Mapping[int, Address]
    """The static voters by id; empty when the metadata log holds them."""
    bootstrap_controllers: tuple[Address, ...]

    @property
    def client_listeners(self) -> tuple[Listener, ...]:
        """The listeners for clients and brokers."""
        return tuple(listener for listener in self.listeners if listener.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners for controllers."""
        return tuple(listener for listener in self.listeners if listener.name in self.controller_listener_names)

    @property
    def is_broker(self) -> bool:
        """Whether the node keeps partitions and serves clients."""
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether the node may be a voter of the metadata quorum."""
        return CONTROLLER in self.roles

    @property
    def partition_dirs(self) -> tuple[Path, ...]:
        """The log directories where partitions are kept: a controller alone keeps none."""
        return self.log_dirs if self.is_broker else ()

    @property
    def all_dirs(self) -> tuple[Path, ...]:
        """The log directories and the metadata log's, each once, sorted."""
        return tuple(sorted({*self.log_dirs, self.metadata_log_dir}))

    def value(self, name: str) -> ConfigValue:
        """The value of a key, or its default; None for null. Raises KeyError for a key that does not exist."""
        return value_of(self.given, name)

    def integer(self, name: str) -> int:
        """The value of an int, short or long that is not null."""
        return _expect(int, name, self.value(name))

    def boolean(self, name: str) -> bool:
        """The value of a boolean."""
        return _expect(bool, name, self.value(name))

    def text(self, name: str) -> str:
        """The value of a string or class that is not null."""
        return _expect(str, name, self.value(name))

    def optional_text(self, name: str) -> str | None:
        """The value of a string or class, or None for null."""
        return None if (value := self.value(name)) is None else _expect(str, name, value)

    def entries(self, name: str) -> list[str]:
        """The value of a list; empty for null."""
        return _expect(list, name, self.value(name) or [])

    def topic_defaults(self) -> dict[str, str]:
        """The defaults of a topic's keys at this node, as text."""
        return {key.name: text for key in config_keys("topic") if (text := self._topic_default(key)) is not None}

    def _topic_default(self, key: ConfigKey) -> str | None:
        for synonym, factor in key.synonyms:
            value = self.value(synonym)
            if isinstance(value, int) and not isinstance(value, bool):
                # Any negative retention is unlimited at the node; the topic's key allows -1 alone.
                return str(max(value * factor, -1) if key.name == "retention.ms" else value * factor)
            if value is not None:
                return format_config("node", synonym, self.given.get(synonym, _default_text(synonym)))
        return key.default


def value_of(given: Mapping[str, str], name: str) -> ConfigValue:
    """The value of a node's key among those given, or its default. Raises KeyError, NodeConfigError."""
    if name in given:
        return _parsed(name, given[name])
    key = find_config_key("node", name)
    if key is None:
        raise KeyError(name)
    return None if key.default is None else _parsed(name, key.default)


def parse(given: Mapping[str, str]) -> NodeConfig:
    """The configuration of these keys and values, each checked by itself. Raises NodeConfigError."""
    given = _with_synonyms(given)
    _check_values(given)
    controller_names = tuple(name.upper() for name in _list(given, "controller.listener.names"))
    protocols = _protocols(given, controller_names)
    bound = _listeners(given, "listeners", protocols)
    advertised = _listeners(given, "advertised.listeners", protocols, distinct_ports=False)
    log_dirs = tuple(Path(folder) for folder in _list(given, "log.dirs") or _list(given, "log.dir"))
    metadata_log_dir = value_of(given, "metadata.log.dir")
    voters = _voters(_list(given, "controller.quorum.voters"))
    node_id = _expect(int, "node.id", value_of(given, "node.id"))
    return NodeConfig(
        given=given,
        roles=frozenset(_list(given, "process.roles")),
        node_id=node_id,
        listeners=bound,
        controller_listener_names=controller_names,
        advertised_brokers=tuple(one for one in advertised or bound if one.name not in controller_names),
        advertised_controllers=_advertised_controllers(controller_names, advertised, bound, voters.get(node_id)),
        inter_broker_listener_name=_inter_broker_listener_name(given, protocols),
        log_dirs=log_dirs,
        metadata_log_dir=log_dirs[0] if metadata_log_dir is None else Path(str(metadata_log_dir)),
        voters=voters,
        bootstrap_controllers=tuple(map(parse_address, _list(given, "controller.quorum.bootstrap.servers"))),
    )


def parse_address(text: str) -> Address:
    """The host, without brackets, and the port of `host:port`."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _with_synonyms(given: Mapping[str, str]) -> dict[str, str]:
    """`broker.id` and `node.id` are synonyms."""
    merged = dict(given)
    for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if name not in given and other in given:
            merged[name] = given[other]
    return merged


def _check_values(given: Mapping[str, str]) -> None:
    """All invalid values are reported together, so that a file can be corrected in one pass."""
    wrong = [*_refusals(given), *_missing(given)]
    if wrong:
        raise NodeConfigError("\n".join(wrong))


def _refusals(given: Mapping[str, str]) -> Iterable[str]:
    for name, text in given.items():
        if find_config_key("node", name) is not None:
            try:
                parse_config("node", name, text)
            except ConfigError as error:
                yield str(error)


def _missing(given: Mapping[str, str]) -> Iterable[str]:
    for key in config_keys("node"):
        if key.is_required and key.name not in given:
            yield f'Missing required configuration "{key.name}", which has no default value'


def _parsed(name: str, text: str) -> bool | int | float | str | list[str]:
    try:
        return parse_config("node", name, text)
    except ConfigError as error:
        raise NodeConfigError(str(error)) from None


def _expect(kind: type[T], name: str, value: object) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}, not of type {kind.__name__}")
    return value


def _list(given: Mapping[str, str], name: str) -> list[str]:
    return _expect(list, name, value_of(given, name) or [])


def _default_text(name: str) -> str:
    key = find_config_key("node", name)
    if key is None or key.default is None:
        raise KeyError(name)
    return key.default


def _naming(name: str, given: Mapping[str, str], make: Callable[[], T]) -> T:
    """The result of `make`; its error is prefixed with the key and the value."""
    try:
        return make()
    except ListenerError as error:
        raise NodeConfigError(f"Invalid value {given.get(name)} for configuration {name}: {error}") from None


def _protocols(given: Mapping[str, str], controller_names: Sequence[str]) -> dict[str, str]:
    name = "listener.security.protocol.map"
    text = _expect(str, name, value_of(given, name))
    protocols = _naming(name, given, lambda: listening.parse_protocol_map(text))
    if name in given:
        return protocols
    return listening.effective_protocols(protocols, controller_names, _list(given, "listeners"))


def _listeners(
    given: Mapping[str, str], name: str, protocols: Mapping[str, str], *, distinct_ports: bool = True
) -> tuple[Listener, ...]:
    entries = _list(given, name)
    return _naming(name, given, lambda: listening.parse_listeners(entries, protocols, distinct_ports=distinct_ports))


def _voters(entries: Sequence[str]) -> dict[int, Address]:
    pairs = (entry.partition("@") for entry in entries)
    return {int(voter): parse_address(address) for voter, _, address in pairs}


def _advertised_controllers(
    names: Sequence[str], advertised: Sequence[Listener], bound: Sequence[Listener], own_voter: Address | None
) -> tuple[Listener, ...]:
    """The advertised listener for each name, else the bound one; a wildcard host becomes this voter's own address."""
    found: list[Listener] = []
    for name in names:
        named = next((one for one in advertised if one.name == name), None)
        here = next((one for one in bound if one.name == name), None)
        if named is not None:
            found.append(named)
        elif here is not None and here.host in ("", "0.0.0.0"):
            host, port = own_voter if own_voter is not None and name == names[0] else ("", here.port)
            found.append(Listener(here.name, here.protocol, host, port))
        elif here is not None:
            found.append(here)
    return tuple(found)


def _inter_broker_listener_name(given: Mapping[str, str], protocols: Mapping[str, str]) -> str:
    name, protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    listener = value_of(given, name)
    if listener is None:
        return _expect(str, protocol, value_of(given, protocol))
    if protocol in given:
        raise NodeConfigError(f"Only one of {name} and {protocol} may be set")
    if str(listener).upper() not in protocols:
        raise NodeConfigError(
            f"Invalid value {listener} for configuration {name}: no such listener in listener.security.protocol.map"
        )
    return str(listener).upper()
