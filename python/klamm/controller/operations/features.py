"""The operation on the cluster's features."""

from __future__ import annotations

from typing import Final

from klamm.controller.operations.operation import Operation
from klamm.protocol.api_key import ApiKey
from klamm.protocol.messages.feature_updates import UpdateFeaturesRequest, UpdateFeaturesResponse

UPDATE_FEATURES: Final = Operation(
    ApiKey.UPDATE_FEATURES,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    lambda decisions, asked: decisions.update_features(asked.request),
    lambda request, code, message: UpdateFeaturesResponse(code, message),
    by_quorum=True,
)
