"""Operations on configurations."""

from __future__ import annotations

from typing import Final

from klamm.controller.operations.operation import Operation
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages import configs


def _refused(
    request: configs.AlterConfigsRequest | configs.IncrementalAlterConfigsRequest, code: ErrorCode, message: str | None
) -> tuple[configs.AlterConfigsResourceResponse, ...]:
    places = dict.fromkeys((each.resource_type, each.resource_name) for each in request.resources)
    return tuple(configs.AlterConfigsResourceResponse(*place, code, message) for place in places)


ALTER_CONFIGS: Final = Operation(
    ApiKey.ALTER_CONFIGS,
    configs.AlterConfigsRequest,
    configs.AlterConfigsResponse,
    lambda decisions, asked: decisions.alter_configs(asked.request),
    lambda request, code, message: configs.AlterConfigsResponse(_refused(request, code, message)),
    by_quorum=True,
)
INCREMENTAL_ALTER_CONFIGS: Final = Operation(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    configs.IncrementalAlterConfigsRequest,
    configs.IncrementalAlterConfigsResponse,
    lambda decisions, asked: decisions.incremental_alter_configs(asked.request),
    lambda request, code, message: configs.IncrementalAlterConfigsResponse(_refused(request, code, message)),
    by_quorum=True,
)
