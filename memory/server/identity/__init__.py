"""Who calls the server: keys, tokens of an identity provider, and the audit log."""

from memory.server.identity.api_key import ApiKey
from memory.server.identity.audit import AuditLog, AuditPage, AuditRecord
from memory.server.identity.authenticator import KeyAuthenticator
from memory.server.identity.jwt import TokenVerifier
from memory.server.identity.key_store import KeyStore
from memory.server.identity.reserved import RESERVED_TENANT, check_tenant, is_reserved

__all__ = (
    "RESERVED_TENANT",
    "ApiKey",
    "AuditLog",
    "AuditPage",
    "AuditRecord",
    "KeyAuthenticator",
    "KeyStore",
    "TokenVerifier",
    "check_tenant",
    "is_reserved",
)
