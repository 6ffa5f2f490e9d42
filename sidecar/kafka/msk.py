"""Tokens of Amazon MSK with IAM, signed by AWS's own library: a signed address that names the region and who asks."""

from typing import Any

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.credentials import CredentialProvider
from botocore.session import Session


class _Found(CredentialProvider):  # type: ignore[misc]  # the SDK has no annotations
    """Hands over what one session has found, and renews itself; the signer takes nothing but providers."""

    def __init__(self) -> None:
        super().__init__(Session())

    def load(self) -> Any:
        found = self.session.get_credentials()
        if found is None:
            raise ValueError("the AWS SDK finds no credentials; on EKS give the service account a role")
        return found


class Signer:
    """Signs for one region: called, it gives a token and when it ends, in epoch milliseconds; it may raise anything."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._found = _Found()

    def __call__(self) -> tuple[str, int]:
        """Sign one; the credentials are looked for the first time, which may ask the network."""
        token, ends_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(self._region, self._found)
        return token, ends_ms
