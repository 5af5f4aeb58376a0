"""Requests and answers about authorization and credentials."""

from __future__ import annotations

from typing import ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value


class DescribeAclsRequest(Value):
    """DescribeAcls (29): a filter; None matches every name, principal or host."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_ACLS
    resource_type_filter: int
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    pattern_type_filter: int = 3


class AclDescription(Value):
    """An access control entry."""

    principal: str
    host: str
    operation: int
    permission_type: int


class DescribeAclsResource(Value):
    """A resource and its access control entries."""

    resource_type: int
    resource_name: str
    pattern_type: int
    acls: tuple[AclDescription, ...]


class DescribeAclsResponse(Value):
    """DescribeAcls (29)."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_ACLS
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    resources: tuple[DescribeAclsResource, ...] = ()
    throttle_time_ms: int = 0


class ScramUser(Value):
    """A user whose credentials are requested."""

    name: str


class DescribeUserScramCredentialsRequest(Value):
    """DescribeUserScramCredentials (50): None and no users both mean all of them."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    users: tuple[ScramUser, ...] | None = None


class ScramCredentialInfo(Value):
    """A credential without its secrets; mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    mechanism: int
    iterations: int


class DescribeUserScramCredentialsResult(Value):
    """The credentials of one user."""

    user: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    credential_infos: tuple[ScramCredentialInfo, ...] = ()


class DescribeUserScramCredentialsResponse(Value):
    """DescribeUserScramCredentials (50)."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""
    results: tuple[DescribeUserScramCredentialsResult, ...] = ()
    throttle_time_ms: int = 0
