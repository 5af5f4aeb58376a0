"""DescribeAcls (29) and DescribeUserScramCredentials (50)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from klamm._engine.metadata import Image
from klamm.broker.request import RequestContext
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.security import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
)
from klamm.protocol.wire.codec import read, write


class AclHandlers:
    """Answers for ACLs as Apache Kafka does where no authorizer is configured (Kafka's AclApis)."""

    async def describe_acls(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """SECURITY_DISABLED, after the request was checked."""
        read(DescribeAclsRequest, version, body)
        # Kafka says "broker" on a controller's listener as well.
        text = "No Authorizer is configured on the broker"
        return write(DescribeAclsResponse(ErrorCode.SECURITY_DISABLED, text), version)


class ScramHandlers:
    """Serves the credentials of the committed image without their secrets (Kafka's ScramImage.describe)."""

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image

    async def describe_user_scram_credentials(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Mechanism and iterations of every credential, or of those of the named users."""
        request = read(DescribeUserScramCredentialsRequest, version, body)
        known = _credentials(self._image())
        names = Counter(user.name for user in request.users or ())
        results = tuple(_result(name, names[name], known) for name in (names or sorted(known)))
        return write(DescribeUserScramCredentialsResponse(results=results), version)


Credentials = Mapping[str, tuple[ScramCredentialInfo, ...]]


def _credentials(image: Image) -> Credentials:
    found: dict[str, tuple[ScramCredentialInfo, ...]] = {}
    for mechanism, user in sorted(image.scram_users()):
        credential = image.scram_credential(mechanism, user)
        if credential is not None:
            found[user] = (*found.get(user, ()), ScramCredentialInfo(mechanism, credential.iterations))
    return found


def _result(name: str, times: int, known: Credentials) -> DescribeUserScramCredentialsResult:
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, text)
    if name not in known:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, text)
    return DescribeUserScramCredentialsResult(name, credential_infos=known[name])
