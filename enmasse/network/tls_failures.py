"""Failed TLS handshakes of accepted sockets: why, for the operator and the maker of the client."""

from __future__ import annotations

import ssl
from typing import Final, NamedTuple


class NotAgreed(OSError):
    """TLS was begun, and not agreed: the peer has left, or took too long."""


class TlsFailure(NamedTuple):
    """`condition`: short, of a bounded number; `reason`: a sentence."""

    condition: str
    reason: str


_REFUSES: Final = "the client refuses this listener's certificate"
_SENTENCES: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": f"{_REFUSES}: it does not have its CA (`--tls auto`: ca.crt, which `enmasse up` names)",
    "SSLV3_ALERT_BAD_CERTIFICATE": f"{_REFUSES}: check the CA that it has, and the name it connects to",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        f"{_REFUSES}: check the CA that it has, and the name it connects to (Proton takes host names, no IP addresses)"
    ),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": f"{_REFUSES}: check the CA that it has, and the name it connects to",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"{_REFUSES}: it has expired by the client's clock",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has sent no certificate, and this listener wants one",
    "UNSUPPORTED_PROTOCOL": "the client's versions of TLS are too old: 1.2 and 1.3 are spoken here",
    "NO_SHARED_CIPHER": "the client and this listener have no cipher in common",
}


def failure(error: OSError) -> TlsFailure | None:
    """Return why a handshake failed; None if the peer left before it had begun, as probes of a port do."""
    if isinstance(error, NotAgreed):
        return TlsFailure("tls: not agreed", str(error))
    if not isinstance(error, ssl.SSLError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailure("tls: certificate refused", f"the client's certificate is refused: {error.verify_message}")
    code = error.reason or ""
    if code in _SENTENCES:
        return TlsFailure(f"tls: {_words(code)}", _SENTENCES[code])
    if " " in code:  # a sentence of ours (tls_handshake)
        return TlsFailure("tls: no client hello", code)
    return TlsFailure(f"tls: {_words(code)}", f"TLS was not agreed: {_words(code) or error}")


def _words(code: str) -> str:
    return code.lower().replace("_", " ")
