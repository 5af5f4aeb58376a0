"""The table of APIs and the names of its keys."""

from __future__ import annotations

import re

from klamm.protocol.api_key import ApiKey
from klamm.protocol.apis import APIS, RAFT_APIS, VOTER_APIS


def test_every_api_has_its_key_by_its_own_name() -> None:
    assert {key.value: key.name for key in ApiKey} == {
        api.key: re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).upper() for api in APIS.values()
    }


def test_only_three_apis_are_allowed_before_authentication() -> None:
    # SaslServerAuthenticator.
    allowed = {key for key, api in APIS.items() if api.is_before_authentication}
    assert allowed == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


def test_requests_between_nodes_need_cluster_action() -> None:
    among_controllers = {key for key, api in APIS.items() if api.on_broker is None}
    for key in (*RAFT_APIS, *among_controllers):
        assert ("ClusterAction", "Cluster") in APIS[key].checks, APIS[key].name
    assert set(VOTER_APIS) - among_controllers == {ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER}


def test_a_forwarded_api_is_served_by_brokers_and_controllers() -> None:
    for api in APIS.values():
        if api.is_forwarded:
            assert api.on_broker is not None, api.name
            assert api.on_controller is not None, api.name
    counted = {key for key, api in APIS.items() if api.quota == "controller mutation"}
    assert counted == {ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS}
