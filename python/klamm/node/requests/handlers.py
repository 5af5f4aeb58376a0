"""The handler of each API of a node. A family of handlers is imported and created by the first request to it.

A node starts without any of them (docs/decisions/0038).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from klamm.broker.authorization import refusal
from klamm.broker.request import InlineHandler
from klamm.controller.operations import MODULES, operations_in
from klamm.protocol.api_key import ApiKey
from klamm.protocol.apis import APIS, RAFT_APIS, VOTER_APIS

if TYPE_CHECKING:
    from klamm._engine.metadata import Image
    from klamm._engine.node import Engine
    from klamm.broker.authorization import Authorizer
    from klamm.broker.handlers.config_changes import AskController, ConfigChangeHandlers
    from klamm.broker.request import Answer, Handler, RequestContext
    from klamm.config.node_config import NodeConfig
    from klamm.controller.driver import ControllerDriver
    from klamm.node.broker_part import BrokerPart
    from klamm.node.controller.active_controller import ActiveController
    from klamm.node.requests.forwarding import Forwarder
    from klamm.node.views.cluster_view import ClusterView
    from klamm.node.views.quorum_view import QuorumView
    from klamm.protocol.errors import ErrorCode
    from klamm.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
    from klamm.raft.driver.serving import RaftRequests


class Handlers:
    """The handlers of one node."""

    def __init__(
        self,
        config: NodeConfig,
        cluster_id: str,
        engine: Engine,
        image: Callable[[], Image],
        *,
        controller: ControllerDriver | None,
        active_controller: ActiveController,
        broker: Callable[[], BrokerPart],
        quorum: Callable[[], QuorumView],
        raft: Callable[[], RaftRequests],
        authorizer: Authorizer,
    ) -> None:
        """`controller` is the one of this process, if there is one; `active_controller` sends requests to the active
        one.

        `broker`, `quorum` and `raft` are called when a request first needs them.
        """
        self._config, self._cluster_id, self._engine, self._image = config, cluster_id, engine, image
        self._controller_here, self._active_controller = controller, active_controller
        self._broker, self._quorum, self._raft = broker, quorum, raft
        self._authorizer = authorizer
        self._on_broker: dict[int, Handler | InlineHandler] = {}
        self._on_controller: dict[int, Handler | InlineHandler] = {}

    def find(self, api_key: int, *, on_controller: bool) -> Handler | InlineHandler | None:
        """The handler of an API on that kind of listener; None if it is not served there."""
        made = self._on_controller if on_controller else self._on_broker
        if api_key not in made:
            make = (CONTROLLER_FAMILIES if on_controller else BROKER_FAMILIES).get(api_key)
            if make is None:
                return None
            made |= {key: handler for key, handler in make(self).items() if key not in made}
        return made[api_key]

    def _view(self) -> ClusterView:
        from klamm.node.views.cluster_view import ClusterView

        return ClusterView(self._image, self._broker().create_internal_topic)

    # APIs of the active controller: forwarded by brokers for clients, or sent by nodes to the controller listener

    @property
    def _controller(self) -> ControllerDriver:
        assert self._controller_here is not None, "a node without a controller has no controller listener"
        return self._controller_here

    def _handler_here(self, context: RequestContext) -> Handler | None:
        """The controller's handler of a forwarded request, which the listener has not authorized."""
        found = self.find(context.api_key, on_controller=True)
        if found is None or isinstance(found, InlineHandler):
            return None
        code = refusal(self._authorizer, context, on_controller=True)
        return found if code is None else partial(_refuse, code)

    @cached_property
    def _forwarder(self) -> Forwarder:
        from klamm.node.requests.forwarding import Forwarder

        return Forwarder(self._active_controller, self._handler_here)

    def _forwarded_apis(self) -> dict[int, Handler | InlineHandler]:
        return dict.fromkeys(FORWARDED, InlineHandler(self._forwarder.forward_inline))

    async def create_topics(self, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Ask the active controller in the name of the client of `context`, which counts for its quota (KIP-599)."""
        from klamm.protocol.messages.topics import CreateTopicsResponse

        return await self._forwarder.ask(context, context.api_version, request, CreateTopicsResponse)

    def _envelope_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.node.requests.envelopes import EnvelopeHandlers

        return {ApiKey.ENVELOPE: EnvelopeHandlers(self._controller, self._handler_here).envelope}

    def _operations(self, module: str) -> dict[int, Handler | InlineHandler]:
        """The operations of the controller that are registered in a module."""
        from klamm.node.requests.operation_handlers import operation_handler

        controller = self._controller
        return {key: operation_handler(one, controller.run) for key, one in operations_in(module).items()}

    def _config_change_operations(self) -> dict[int, Handler | InlineHandler]:
        """The operations for configs; log levels, which IncrementalAlterConfigs can set too, belong to this node."""
        from klamm.controller.operations.configs import INCREMENTAL_ALTER_CONFIGS as OPERATION

        controller = self._controller

        async def decide(context: RequestContext, version: int, request: Any, answer: type[Any]) -> Any:
            return await controller.run(OPERATION, request, version)

        handlers = self._operations("configs")
        return handlers | {OPERATION.api_key: self._config_changes(decide).incremental_alter_configs_at_controller}

    def _quorum_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.quorum import QuorumHandlers

        return {ApiKey.DESCRIBE_QUORUM: QuorumHandlers(self._quorum().state).describe_quorum}

    def _cluster_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.cluster import ClusterHandlers

        handlers = ClusterHandlers(
            self._cluster_id,
            self._image,
            lambda: self._config.node_id,
            lambda: self._quorum().leader_id,
            lambda: self._quorum().state(),
        )
        return {ApiKey.DESCRIBE_CLUSTER: handlers.describe_cluster}

    def _raft_apis(self) -> dict[int, Handler | InlineHandler]:
        """The requests between the replicas of the metadata log."""
        requests = self._raft()

        def handle(context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
            give: Callable[[Callable[[], bytes]], None] = answer.written(lambda made: made())
            requests.handle(context.api_key, version, body, context.listener, give)

        return dict.fromkeys(RAFT_APIS, InlineHandler(handle))

    def _voter_apis(self) -> dict[int, Handler | InlineHandler]:
        """Changes of the quorum's voters, which wait for their commit."""
        import asyncio

        requests = self._raft()

        async def handle(context: RequestContext, version: int, body: bytes) -> bytes:
            answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

            def give(make: Callable[[], bytes]) -> None:
                if answered.done():
                    return
                try:
                    answered.set_result(make())
                except Exception as error:  # the awaiting handler raises it
                    answered.set_exception(error)

            requests.handle(context.api_key, version, body, context.listener, give)
            return await answered

        return dict.fromkeys(VOTER_APIS, handle)

    # APIs that a broker answers itself, or validates before the controller decides

    def _coordinator_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.coordinators import GROUP_KEY, SHARE_KEY, TRANSACTION_KEY, CoordinatorHandlers

        broker = self._broker()
        placements = {
            GROUP_KEY: (broker.groups.topic, broker.groups.partition_for),
            TRANSACTION_KEY: (broker.transactions.topic, broker.transactions.partition_for),
            SHARE_KEY: (broker.share_states.topic, broker.share_states.partition_for_key),
        }
        return {ApiKey.FIND_COORDINATOR: CoordinatorHandlers(self._view(), placements).find_coordinator}

    def _group_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.groups import GroupHandlers

        handlers = GroupHandlers(self._broker().groups.coordinator)
        return {
            ApiKey.JOIN_GROUP: handlers.join_group,
            ApiKey.HEARTBEAT: InlineHandler(handlers.heartbeat),
            ApiKey.LEAVE_GROUP: handlers.leave_group,
            ApiKey.SYNC_GROUP: handlers.sync_group,
            ApiKey.DESCRIBE_GROUPS: handlers.describe_groups,
            ApiKey.LIST_GROUPS: handlers.list_groups,
            ApiKey.DELETE_GROUPS: handlers.delete_groups,
        }

    def _consumer_group_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.consumer_groups import ConsumerGroupHandlers

        groups = self._broker().groups
        handlers = ConsumerGroupHandlers(groups.coordinator, groups.has_consumer_groups)
        return {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: InlineHandler(handlers.heartbeat),
            ApiKey.CONSUMER_GROUP_DESCRIBE: handlers.describe,
        }

    def _streams_group_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.streams_groups import StreamsGroupHandlers
        from klamm.node.coordinators.internal_topics import InternalTopicCreation

        broker = self._broker()
        timeout_ms = self._config.integer("request.timeout.ms")
        topics = InternalTopicCreation(self.create_topics, broker.in_background, timeout_ms)
        handlers = StreamsGroupHandlers(broker.groups.coordinator.streams, topics, broker.groups.has_streams_groups)
        return {
            ApiKey.STREAMS_GROUP_HEARTBEAT: InlineHandler(handlers.heartbeat),
            ApiKey.STREAMS_GROUP_DESCRIBE: handlers.describe,
        }

    def _offset_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.offsets import OffsetHandlers

        handlers = OffsetHandlers(self._broker().groups.coordinator, self._view())
        return {
            ApiKey.OFFSET_COMMIT: InlineHandler(handlers.offset_commit, handlers.commit),
            ApiKey.OFFSET_FETCH: InlineHandler(handlers.offset_fetch),
            ApiKey.OFFSET_DELETE: handlers.offset_delete,
            ApiKey.TXN_OFFSET_COMMIT: handlers.txn_offset_commit,
        }

    def _record_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.records import RecordHandlers
        from klamm.node.views.partitions import LocalPartitions

        handlers = RecordHandlers(LocalPartitions(self._engine, self._image))
        return {
            ApiKey.DELETE_RECORDS: handlers.delete_records,
            ApiKey.DESCRIBE_PRODUCERS: handlers.describe_producers,
        }

    def _producer_id_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.producer_ids import ProducerIdHandlers

        broker = self._broker()
        handlers = ProducerIdHandlers(broker.producer_ids, lambda: broker.transactions.coordinator)
        return {ApiKey.INIT_PRODUCER_ID: handlers.init_producer_id}

    def _transaction_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.transactions import TransactionHandlers

        broker, view = self._broker(), self._view()
        transactions, groups = broker.transactions, broker.groups
        handlers = TransactionHandlers(
            transactions.coordinator,
            view.has_partition,
            lambda group: (groups.topic, groups.partition_for(group)),
            transactions.write_markers,
        )
        return {
            ApiKey.ADD_PARTITIONS_TO_TXN: InlineHandler(handlers.add_partitions_to_txn),
            ApiKey.ADD_OFFSETS_TO_TXN: InlineHandler(handlers.add_offsets_to_txn),
            ApiKey.END_TXN: InlineHandler(handlers.end_txn),
            ApiKey.WRITE_TXN_MARKERS: InlineHandler(handlers.write_txn_markers),
            ApiKey.DESCRIBE_TRANSACTIONS: handlers.describe_transactions,
            ApiKey.LIST_TRANSACTIONS: handlers.list_transactions,
        }

    def _share_group_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.share_groups import ShareGroupHandlers

        broker = self._broker()
        groups = broker.groups.coordinator
        handlers = ShareGroupHandlers(groups.share, groups, lambda: broker.share_states.is_enabled)
        return {
            ApiKey.SHARE_GROUP_HEARTBEAT: InlineHandler(handlers.heartbeat),
            ApiKey.SHARE_GROUP_DESCRIBE: handlers.describe,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: handlers.describe_offsets,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: handlers.alter_offsets,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: handlers.delete_offsets,
        }

    def _share_state_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.share_state import ShareStateHandlers

        handlers = ShareStateHandlers(self._broker().share_states.coordinator)
        return {
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: handlers.initialize,
            ApiKey.READ_SHARE_GROUP_STATE: handlers.read,
            ApiKey.WRITE_SHARE_GROUP_STATE: handlers.write,
            ApiKey.DELETE_SHARE_GROUP_STATE: handlers.delete,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: handlers.read_summary,
        }

    def _log_dir_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.log_dirs import LogDirHandlers
        from klamm.node.views.log_dirs import LogDirs

        handlers = LogDirHandlers(LogDirs(self._engine, self._image, self._broker().directories))
        return {
            ApiKey.ALTER_REPLICA_LOG_DIRS: handlers.alter_replica_log_dirs,
            ApiKey.DESCRIBE_LOG_DIRS: handlers.describe_log_dirs,
        }

    def _config_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.configs import ConfigHandlers

        handlers = ConfigHandlers(self._config.node_id, self._config.given, self._image)
        return {
            ApiKey.DESCRIBE_CONFIGS: handlers.describe_configs,
            ApiKey.LIST_CONFIG_RESOURCES: handlers.list_config_resources,
        }

    def _acl_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.security import AclHandlers

        return {ApiKey.DESCRIBE_ACLS: AclHandlers().describe_acls}

    def _scram_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.security import ScramHandlers

        return {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ScramHandlers(self._image).describe_user_scram_credentials}

    def _quota_apis(self) -> dict[int, Handler | InlineHandler]:
        from klamm.broker.handlers.client_quotas import QuotaHandlers

        return {ApiKey.DESCRIBE_CLIENT_QUOTAS: QuotaHandlers(self._image).describe_client_quotas}

    def _config_changes(self, ask: AskController) -> ConfigChangeHandlers:
        from klamm.broker.handlers.config_changes import ConfigChangeHandlers
        from klamm.node.dynamic_listeners import check_listeners

        return ConfigChangeHandlers(
            self._config.node_id,
            self._config.given,
            self._image,
            ask,
            check_listeners=partial(check_listeners, self._config),
        )

    def _config_change_apis(self) -> dict[int, Handler | InlineHandler]:
        handlers = self._config_changes(self._forwarder.ask)
        return {
            ApiKey.ALTER_CONFIGS: handlers.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: handlers.incremental_alter_configs,
        }


Family = Callable[[Handlers], dict[int, "Handler | InlineHandler"]]


async def _refuse(code: ErrorCode, context: RequestContext, version: int, body: bytes) -> bytes:
    from klamm.protocol.wire.error_responses import error_response

    return error_response(context.api_key, version, body, code)


def _by_key(families: Mapping[Family, tuple[int, ...]]) -> dict[int, Family]:
    return {key: family for family, keys in families.items() for key in keys}


_CHANGES_OF_CONFIGS: Final = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
FORWARDED: Final = tuple(
    key
    for key, api in APIS.items()
    if api.is_forwarded and api.on_broker == "python" and key not in _CHANGES_OF_CONFIGS
)
"""The APIs that a broker forwards unchanged. It validates changes of configs first."""
CONTROLLER_FAMILIES: Final = _by_key(
    {
        partial(Handlers._operations, module="topics"): MODULES["topics"],
        partial(Handlers._operations, module="replicas"): MODULES["replicas"],
        partial(Handlers._operations, module="features"): MODULES["features"],
        partial(Handlers._operations, module="client_quotas"): MODULES["client_quotas"],
        partial(Handlers._operations, module="nodes"): MODULES["nodes"],
        Handlers._config_change_operations: MODULES["configs"],
        Handlers._quorum_apis: (ApiKey.DESCRIBE_QUORUM,),
        Handlers._cluster_apis: (ApiKey.DESCRIBE_CLUSTER,),
        Handlers._config_apis: (ApiKey.DESCRIBE_CONFIGS,),
        Handlers._acl_apis: (ApiKey.DESCRIBE_ACLS,),
        Handlers._envelope_apis: (ApiKey.ENVELOPE,),
        Handlers._raft_apis: RAFT_APIS,
        Handlers._voter_apis: VOTER_APIS,
    }
)
"""The APIs of controller listeners, each with the factory of its handlers."""
BROKER_FAMILIES: Final = _by_key(
    {
        Handlers._forwarded_apis: FORWARDED,
        Handlers._cluster_apis: (ApiKey.DESCRIBE_CLUSTER,),
        Handlers._coordinator_apis: (ApiKey.FIND_COORDINATOR,),
        Handlers._group_apis: (
            ApiKey.JOIN_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.DELETE_GROUPS,
        ),
        Handlers._consumer_group_apis: (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
        Handlers._streams_group_apis: (ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE),
        Handlers._offset_apis: (
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_DELETE,
            ApiKey.TXN_OFFSET_COMMIT,
        ),
        Handlers._record_apis: (ApiKey.DELETE_RECORDS, ApiKey.DESCRIBE_PRODUCERS),
        Handlers._producer_id_apis: (ApiKey.INIT_PRODUCER_ID,),
        Handlers._transaction_apis: (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.WRITE_TXN_MARKERS,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.LIST_TRANSACTIONS,
        ),
        Handlers._share_group_apis: (
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ApiKey.SHARE_GROUP_DESCRIBE,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ),
        Handlers._share_state_apis: (
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ),
        Handlers._log_dir_apis: (ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.DESCRIBE_LOG_DIRS),
        Handlers._config_apis: (ApiKey.DESCRIBE_CONFIGS, ApiKey.LIST_CONFIG_RESOURCES),
        Handlers._acl_apis: (ApiKey.DESCRIBE_ACLS,),
        Handlers._scram_apis: (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,),
        Handlers._quota_apis: (ApiKey.DESCRIBE_CLIENT_QUOTAS,),
        Handlers._config_change_apis: _CHANGES_OF_CONFIGS,
    }
)
"""The APIs of client and broker listeners, each with the factory of its handlers."""
