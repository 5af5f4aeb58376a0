"""The metadata of a cluster: images, their contents, the deltas between them, and metadata records."""

from collections.abc import Sequence
from typing import Any, Self, final

class MetadataRecordError(ValueError):
    """The bytes are not a metadata record that klamm knows, or a record cannot be encoded in a version."""

def encode_metadata_record(record_type: int, version: int, record: object) -> bytes:
    """The framed record; fields are read as attributes. klamm.protocol.generated.metadata_records is the typed door."""

def decode_metadata_record(data: bytes) -> tuple[int, int, dict[str, Any]]:
    """Type, version and fields of the record that is all of `data`. MetadataRecordError."""

def metadata_record_version(record_type: int, metadata_version: int) -> int:
    """The highest version of a record at a level of metadata.version (Kafka's `MetadataVersion`)."""

def metadata_record_schemas() -> list[dict[str, Any]]:
    """The description of every record: what tools/generate_metadata_records.py reads."""

class MetadataReplayError(ValueError):
    """A record cannot be applied to an image; the message names the record. The image is unchanged."""

@final
class Image:
    """The metadata of a cluster: immutable, cheap to keep. Methods return None or nothing for unknown names and ids."""

    def __new__(cls) -> Self: ...
    def apply(self, records: Sequence[bytes]) -> Image:
        """A new image with these records applied, all or none. Raises MetadataReplayError."""
    def apply_batches(self, batches: bytes) -> Image:
        """A new image with complete batches of the metadata log applied, which set its provenance. Batches that the
        image contains already and control batches are skipped. Raises MetadataReplayError."""
    def delta_since(self, older: Image) -> Delta:
        """The delta from an older image; cheap if the two share most. Compare `stable` images: a transaction may be
        open."""
    def with_provenance(self, last_offset: int, last_epoch: int, last_timestamp_ms: int) -> Image:
        """The same image with another provenance: the offset, epoch and append time of the last record it contains."""
    @property
    def last_offset(self) -> int:
        """-1 without provenance; so are the next two."""
    @property
    def last_epoch(self) -> int: ...
    @property
    def last_timestamp_ms(self) -> int: ...
    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open. AbortTransactionRecord restores the image before it."""
    @property
    def stable(self) -> Image:
        """The image without the changes of an open transaction: what may be published."""
    @property
    def metadata_version(self) -> int | None: ...
    @property
    def is_elr_enabled(self) -> bool: ...
    def feature(self, name: str) -> int:
        """The finalized level of a feature, as in `features`; 0 without one."""
    def features(self) -> dict[str, int]:
        """Finalized levels by name, metadata.version among them; never kraft.version."""
    @property
    def topic_count(self) -> int: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def leaderless_partition_count(self) -> int: ...
    @property
    def imbalanced_partition_count(self) -> int:
        """Partitions whose leader is not the preferred replica."""
    @property
    def reassigning_partition_count(self) -> int: ...
    def topic_id(self, name: str) -> bytes | None: ...
    def topic_name(self, topic_id: bytes) -> str | None: ...
    def topic_names(self) -> list[str]:
        """In ascending order; sorted again only after a topic was created or deleted."""
    def leader(self, topic: str, index: int) -> int | None:
        """The leader of a partition by its topic's name, -1 for none; None if there is no such partition."""
    def partition(self, topic_id: bytes, index: int) -> PartitionInfo | None: ...
    def partitions(self, topic_id: bytes) -> list[PartitionInfo]:
        """By ascending number."""
    def topic_partition_count(self, topic_id: bytes) -> int: ...
    def reassigning_partitions(self) -> list[tuple[bytes, int]]: ...
    def broker(self, broker_id: int) -> BrokerInfo | None: ...
    def broker_ids(self) -> list[int]: ...
    def broker_partition_counts(self, broker_id: int) -> BrokerPartitionCounts: ...
    def controller(self, controller_id: int) -> ControllerInfo | None: ...
    def controller_ids(self) -> list[int]: ...
    def configs(self, resource_type: int, name: str) -> dict[str, str]:
        """The dynamic configs of this resource: 2 topic, 4 broker ("" is the cluster default), 16 metrics, 32 group."""
    def config(self, resource_type: int, name: str, key: str) -> str | None: ...
    def config_resources(self, resource_type: int) -> list[str]:
        """The names of the resources of a type that have dynamic configs."""
    def quotas(self) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """Entity (type to name, None is the default entity) and its quotas by key."""
    @property
    def has_quotas(self) -> bool:
        """Whether any entity has a quota."""
    def quota(self, entity: dict[str, str | None]) -> dict[str, float]: ...
    @property
    def next_producer_id(self) -> int | None:
        """The first producer id that is not allocated; None if none was ever allocated."""
    def acls(self) -> list[AclInfo]: ...
    def acl(self, acl_id: bytes) -> AclInfo | None: ...
    def scram_credential(self, mechanism: int, user: str) -> ScramInfo | None:
        """Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""
    def scram_users(self) -> list[tuple[int, str]]:
        """Mechanism and user of every credential."""
    def delegation_token(self, token_id: str) -> DelegationTokenInfo | None: ...
    def delegation_token_ids(self) -> list[str]: ...

@final
class Delta:
    """The differences between two images. Topics are (id, name)."""

    @property
    def is_empty(self) -> bool: ...
    @property
    def created_topics(self) -> list[tuple[bytes, str]]: ...
    @property
    def deleted_topics(self) -> list[tuple[bytes, str]]: ...
    @property
    def changed_topics(self) -> list[tuple[bytes, str, list[int]]]:
        """Topics that existed before, with their new and changed partitions."""
    @property
    def changed_configs(self) -> list[tuple[int, str]]:
        """Type and name of resources with configs that were set, changed or deleted; a broker's also if set again."""
    @property
    def changed_brokers(self) -> list[int]:
        """Those that were registered, changed or removed; so are the next ones."""
    @property
    def changed_controllers(self) -> list[int]: ...
    @property
    def changed_features(self) -> list[str]: ...
    @property
    def changed_quotas(self) -> list[dict[str, str | None]]: ...
    @property
    def changed_acls(self) -> list[bytes]: ...
    @property
    def changed_scram(self) -> list[tuple[int, str]]:
        """Mechanism and user."""
    @property
    def changed_delegation_tokens(self) -> list[str]: ...
    @property
    def producer_ids_changed(self) -> bool: ...

@final
class PartitionInfo:
    """One partition. Directories are parallel to the replicas."""

    @property
    def index(self) -> int: ...
    @property
    def replicas(self) -> list[int]: ...
    @property
    def isr(self) -> list[int]: ...
    @property
    def leader(self) -> int:
        """-1 for none."""
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def leader_recovery_state(self) -> int:
        """0 recovered, 1 recovering from an unclean election."""
    @property
    def elr(self) -> list[int]: ...
    @property
    def last_known_elr(self) -> list[int]: ...
    @property
    def adding_replicas(self) -> list[int]: ...
    @property
    def removing_replicas(self) -> list[int]: ...
    @property
    def directories(self) -> list[bytes]: ...

@final
class EndpointInfo:
    """Where a node listens; the protocol's id: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def security_protocol(self) -> int: ...

@final
class SupportedFeatureInfo:
    """The levels of a feature that a node supports."""

    @property
    def name(self) -> str: ...
    @property
    def level_min(self) -> int: ...
    @property
    def level_max(self) -> int: ...

@final
class BrokerPartitionCounts:
    """How many partitions a broker leads, is in the ISR of, in the ELR of, and a replica of."""

    @property
    def leaders(self) -> int: ...
    @property
    def in_sync(self) -> int: ...
    @property
    def eligible(self) -> int: ...
    @property
    def replicas(self) -> int: ...

@final
class BrokerInfo:
    """A registered broker."""

    @property
    def id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def incarnation_id(self) -> bytes: ...
    @property
    def endpoints(self) -> list[EndpointInfo]: ...
    @property
    def features(self) -> list[SupportedFeatureInfo]: ...
    @property
    def rack(self) -> str | None: ...
    @property
    def fenced(self) -> bool: ...
    @property
    def in_controlled_shutdown(self) -> bool: ...
    @property
    def is_active(self) -> bool:
        """Neither fenced nor in controlled shutdown."""
    @property
    def log_dirs(self) -> list[bytes]: ...
    @property
    def cordoned_log_dirs(self) -> list[bytes] | None:
        """None until the broker reported them."""
    @property
    def default_dir(self) -> bytes:
        """The directory recorded for a new replica: the only one, or UNASSIGNED; for an old broker zero."""
    def has_online_dir(self, directory_id: bytes) -> bool: ...

@final
class ControllerInfo:
    """A registered controller (KIP-919)."""

    @property
    def id(self) -> int: ...
    @property
    def incarnation_id(self) -> bytes: ...
    @property
    def zk_migration_ready(self) -> bool: ...
    @property
    def endpoints(self) -> list[EndpointInfo]: ...
    @property
    def features(self) -> list[SupportedFeatureInfo]: ...

@final
class AclInfo:
    """One ACL; the numbers are the protocol's."""

    @property
    def id(self) -> bytes: ...
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def pattern_type(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...

@final
class ScramInfo:
    """A SCRAM credential."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...

@final
class DelegationTokenInfo:
    """A delegation token; timestamps in ms."""

    @property
    def token_id(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def requester(self) -> str: ...
    @property
    def renewers(self) -> list[str]: ...
    @property
    def issue_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def expiration_timestamp(self) -> int: ...
