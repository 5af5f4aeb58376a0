"""The configuration keys of nodes, topics, groups and client metrics, and how their values are parsed."""

from typing import Literal, final

ConfigScope = Literal["node", "topic", "group", "client-metrics"]  # in the stub only

class ConfigError(ValueError):
    """A configuration key or value that is refused; the text names key, value and what is allowed."""

@final
class ConfigKey:
    """One configuration key (Kafka's `ConfigDef.ConfigKey`)."""

    @property
    def scope(self) -> ConfigScope: ...
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str:
        """BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS or PASSWORD."""
    @property
    def type_id(self) -> int:
        """The type as DescribeConfigs sends it."""
    @property
    def default(self) -> str | None:
        """The default as it is printed; None when the value is null, or required."""
    @property
    def is_required(self) -> bool: ...
    @property
    def allowed(self) -> str:
        """The allowed values, as Kafka prints them; empty if every value of the type is allowed."""
    @property
    def update_mode(self) -> Literal["read-only", "per-broker", "cluster-wide"]:
        """Whether a node's key can be changed while it runs."""
    @property
    def documentation(self) -> str:
        """What the key does, and whether it has an effect in klamm yet."""
    @property
    def is_honoured(self) -> bool:
        """Whether klamm acts on the key. A key that has no effect is still validated and described."""
    @property
    def is_internal(self) -> bool: ...
    @property
    def is_dynamic_only(self) -> bool:
        """Settable through the Admin API, not in server.properties."""
    @property
    def is_sensitive(self) -> bool:
        """A password: never logged, described or sent."""
    @property
    def synonyms(self) -> list[tuple[str, int]]:
        """Node keys that give the default, first wins; each with the factor that turns its unit into this key's."""

def config_keys(scope: ConfigScope) -> list[ConfigKey]:
    """Every key of a scope; for a node klamm's own after Kafka's."""

def find_config_key(scope: ConfigScope, name: str) -> ConfigKey | None:
    """The key of that name."""

def parse_config(scope: ConfigScope, name: str, value: str) -> bool | int | float | str | list[str]:
    """The value as the key's type. ConfigError: unknown key, wrong type, or not allowed."""

def format_config(scope: ConfigScope, name: str, value: str) -> str:
    """The value as Kafka prints it after parsing: trimmed, numbers and lists in their plain form."""
