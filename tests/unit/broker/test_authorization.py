"""Requests that concern the whole cluster are authorized before their handler runs, where the check is declared."""

from __future__ import annotations

import pytest
from tests.support.request_contexts import request_context

from klamm.broker.authorization import CLUSTER_NAME, AllowAll, cluster_operations, refusal
from klamm.broker.request import RequestContext
from klamm.protocol.api_key import ApiKey
from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode
from klamm.protocol.principal import Principal


class Only:
    """Allows a user one operation."""

    def __init__(self, user: str, operation: str) -> None:
        self.user, self.operation = user, operation

    def allows(self, context: RequestContext, operation: str, resource: str, name: str) -> bool:
        assert (resource, name) == ("Cluster", CLUSTER_NAME)
        return (context.principal.name, operation) == (self.user, self.operation)


@pytest.mark.parametrize(
    ("api_key", "on_controller", "operations"),
    [
        (ApiKey.VOTE, True, ("ClusterAction",)),
        (ApiKey.FETCH, True, ("ClusterAction",)),
        (ApiKey.FETCH, False, ()),
        (ApiKey.ENVELOPE, True, ("ClusterAction",)),
        (ApiKey.UPDATE_FEATURES, True, ("Alter",)),
        (ApiKey.UPDATE_FEATURES, False, ()),
        (ApiKey.CREATE_TOPICS, True, ()),
        (ApiKey.DESCRIBE_CLUSTER, True, ("Alter",)),
        (ApiKey.DESCRIBE_CLUSTER, False, ()),
        (ApiKey.DESCRIBE_LOG_DIRS, False, ("Describe",)),
        (ApiKey.WRITE_TXN_MARKERS, False, ("Alter", "ClusterAction")),
        (ApiKey.API_VERSIONS, True, ()),
    ],
)
def test_where_and_for_what_a_request_is_checked(
    api_key: ApiKey, on_controller: bool, operations: tuple[str, ...]
) -> None:
    assert cluster_operations(api_key, on_controller=on_controller) == operations


def test_one_of_the_operations_is_enough() -> None:
    context = request_context(ApiKey.WRITE_TXN_MARKERS, principal=Principal(name="alice"))
    assert refusal(Only("alice", "ClusterAction"), context, on_controller=False) is None
    for authorizer in (Only("alice", "Describe"), Only("bob", "Alter")):
        assert refusal(authorizer, context, on_controller=False) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_without_an_authorizer_everything_is_allowed() -> None:
    for api_key in APIS:
        for on_controller in (False, True):
            assert refusal(AllowAll(), request_context(api_key), on_controller=on_controller) is None
