"""Signs tokens for Amazon MSK with IAM, by the library of AWS: a token is a signed URL that names region and caller."""

from typing import Any

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.credentials import CredentialProvider
from botocore.session import Session


class _Found(CredentialProvider):  # type: ignore[misc]  # the SDK has no annotations
    """Provides the credentials that one session has found, and renews itself; the signer accepts only providers."""

    def __init__(self) -> None:
        super().__init__(Session())

    def load(self) -> Any:
        found = self.session.get_credentials()
        if found is None:
            raise ValueError("the AWS SDK finds no credentials; on EKS give the service account a role")
        return found


class Signer:
    """Signs tokens for one region: a call returns a token and its end in epoch milliseconds, or raises any error."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._found = _Found()

    def __call__(self) -> tuple[str, int]:
        """Sign a token; the first call looks for the credentials, which may need the network."""
        token, ends_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(self._region, self._found)
        return token, ends_ms
