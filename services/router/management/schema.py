"""Entity types of the router as Qpid Dispatch 1.19 names them: attributes in column order, what may be set, "
"and how.

The order of the attributes is the order of the columns of a QUERY without attribute names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from enmasse.text import whole_number

PREFIX = "org.apache.qpid.dispatch."
MANAGEMENT = "org.amqp.management"

OK, CREATED, NO_CONTENT = 200, 201, 204
BAD_REQUEST, FORBIDDEN, NOT_FOUND, INTERNAL, NOT_IMPLEMENTED = 400, 403, 404, 500, 501
STATUS_TEXT = {
    200: "OK",
    201: "Created",
    204: "No Content",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    500: "Internal Server Error",
    501: "Not Implemented",
}


class ManagementError(Exception):
    """Raised to answer a request with `status` and `description`."""

    def __init__(self, status: int, description: str = "") -> None:
        super().__init__(description or STATUS_TEXT.get(status, str(status)))
        self.status = status

    @property
    def description(self) -> str:
        """Text of the answer."""
        return str(self)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: `kind` is str, int, bool, map, list, names (a list, or text with commas) or enum (then `choices`);
    `create`, `update`: may be set by it."""

    name: str
    kind: str = "str"
    default: Any = None
    choices: tuple[str, ...] = ()
    create: bool = False
    update: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class EntityType:
    """`core`: one of the hot types, whose error answers have a null body and which may be paged."""

    short: str
    attributes: tuple[Attribute, ...]
    operations: frozenset[str]
    core: bool = False
    singleton: bool = False
    deprecated: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Full name of the type."""
        return PREFIX + self.short

    @property
    def columns(self) -> list[str]:
        """Names of the attributes, in the order of columns."""
        return [a.name for a in self.attributes]


_KINDS: Final = ("str", "int", "bool", "map", "list", "names")


def _attributes(text: str) -> tuple[Attribute, ...]:
    """Parse `name:kind=default!flags` words; flags C(reate) U(pdate) R(equired); `a|b` is an enum."""
    found = []
    for word in text.split():
        word, _, flags = word.partition("!")
        word, has_default, default_text = word.partition("=")
        name, _, kind = word.partition(":")
        kind = kind or "str"
        choices: tuple[str, ...] = ()
        if kind not in _KINDS:
            choices, kind = tuple(kind.split("|")), "enum"
        default: Any = None
        if has_default:
            default = int(default_text) if kind == "int" else default_text == "true" if kind == "bool" else default_text
        found.append(Attribute(name, kind, default, choices, "C" in flags or "R" in flags, "U" in flags, "R" in flags))
    return tuple(found)


def _type(short: str, attributes: str, operations: str = "READ", **more: Any) -> EntityType:
    return EntityType(short, _attributes(attributes), frozenset(operations.split()), **more)


_COMMON = "name!C identity type "
_CRD = "CREATE READ DELETE"
_ROLES = "role:normal|inter-router|route-container|edge=normal!C"

_CONNECTION_COMMON = (
    "cost:int=1!C sslProfile!C saslMechanisms!C maxFrameSize:int=16384!C maxSessions:int=32768!C "
    "maxSessionFrames:int!C "
    "idleTimeoutSeconds:int=16!C stripAnnotations:in|out|both|no=both!C linkCapacity:int!C "
    "messageLoggingComponents=none!C "
    "policyVhost!C openProperties:map!C socketAddressFamily:IPv4|IPv6!C "
)

CONFIG_ADDRESS = _type(
    "router.config.address",
    _COMMON + "prefix!C distribution:multicast|closest|balanced|unavailable=balanced!C "
    "waypoint:bool=false!C ingressPhase:int!C "
    "egressPhase:int!C pattern!C priority:int!C fallback:bool=false!C",
    _CRD,
    core=True,
    deprecated={"enableFallback": "fallback"},
)
CONFIG_LINK_ROUTE = _type(
    "router.config.linkRoute",
    _COMMON
    + "prefix!C distribution:linkBalanced=linkBalanced!C connection!C containerId!C direction:in|out!R dir operStatus "
    "pattern!C addExternalPrefix!C delExternalPrefix!C",
    _CRD,
    core=True,
    deprecated={"dir": "direction"},
)
CONFIG_AUTO_LINK = _type(
    "router.config.autoLink",
    _COMMON
    + "address!R addr direction:in|out!R dir phase:int!C connection!C containerId!C externalAddress!C externalAddr "
    "linkRef operStatus lastError fallback:bool=false!C",
    _CRD,
    core=True,
    deprecated={"addr": "address", "dir": "direction", "externalAddr": "externalAddress"},
)
ADDRESS = _type(
    "router.address",
    _COMMON
    + "key distribution inProcess:int subscriberCount:int remoteCount:int containerCount:int remoteHostRouters:list "
    "deliveriesIngress:int deliveriesEgress:int deliveriesTransit:int deliveriesToContainer:int "
    "deliveriesFromContainer:int "
    "deliveriesEgressRouteContainer:int deliveriesIngressRouteContainer:int transitOutstanding:list "
    "trackedDeliveries:int "
    "priority:int deliveriesRedirectedToFallback:int",
    "READ",
    core=True,
)
LINK = _type(
    "router.link",
    _COMMON + "linkName linkType linkDir owningAddr capacity:int peer undeliveredCount:int "
    "unsettledCount:int deliveryCount:int "
    "connectionId adminStatus operStatus presettledCount:int droppedPresettledCount:int "
    "acceptedCount:int "
    "rejectedCount:int releasedCount:int modifiedCount:int deliveriesDelayed1Sec:int deliveriesDelayed10Sec:int "
    "deliveriesStuck:int ingressHistogram:list priority:int settleRate:int creditAvailable:int "
    "zeroCreditSeconds:int",
    "READ",
    core=True,
)
CONNECTION = _type(
    "connection",
    "name identity host role protocol dir container sasl isAuthenticated:bool user isEncrypted:bool sslProto "
    "sslCipher "
    "properties:map sslSsf:int tenant type ssl:bool opened:bool active:bool adminStatus:enabled|deleted!U "
    "operStatus uptimeSeconds:int "
    "lastDlvSeconds:int enableProtocolTrace:bool",
    "READ UPDATE",
    core=True,
)
ROUTER = _type(
    "router",
    "name identity id type mode area version metadata addrCount:int linkCount:int nodeCount:int "
    "linkRouteCount:int autoLinkCount:int "
    "connectionCount:int presettledDeliveries:int droppedPresettledDeliveries:int acceptedDeliveries:int "
    "rejectedDeliveries:int "
    "releasedDeliveries:int modifiedDeliveries:int deliveriesDelayed1Sec:int deliveriesDelayed10Sec:int "
    "deliveriesStuck:int "
    "deliveriesIngress:int deliveriesEgress:int deliveriesTransit:int deliveriesIngressRouteContainer:int "
    "deliveriesEgressRouteContainer:int deliveriesRedirectedToFallback:int linksBlocked:int uptimeSeconds:int "
    "memoryUsage:int "
    "workerThreads:int",
    "READ",
    core=True,
    singleton=True,
)
NODE = _type(
    "router.node",
    _COMMON
    + "id protocolVersion:int instance:int linkState:list nextHop validOrigins:list address routerLink cost:int "
    "lastTopoChange:int index:int",
)
LISTENER = _type(
    "listener",
    _COMMON + "host=!C port=amqp!C " + _ROLES + " " + _CONNECTION_COMMON + "authenticatePeer:bool=false!C "
    "saslPlugin!C "
    "requireEncryption:bool=false!C requireSsl:bool=false!C initialHandshakeTimeoutSeconds:int=0!C "
    "multiTenant:bool=false!C "
    "failoverUrls!C healthz:bool=true!C metrics:bool=true!C websockets:bool=true!C http:bool=false!C httpRootDir!C "
    "trustedCertsFile!C management:bool=true!C access:services|operators|inter-router!C space!C shared:bool=false!C "
    "operStatus",
    _CRD,
    deprecated={
        "addr": "host",
        "httpRoot": "httpRootDir",
        "failoverList": "failoverUrls",
        "logMessage": "messageLoggingComponents",
        "protocolFamily": "socketAddressFamily",
        "trustedCerts": "trustedCertsFile",
    },
)
CONNECTOR = _type(
    "connector",
    _COMMON + "host=127.0.0.1!C port=amqp!C " + _ROLES + " " + _CONNECTION_COMMON + "allowRedirect:bool=true!C "
    "verifyHostname:bool=true!C saslUsername!C saslPassword!C failoverUrls connectionStatus connectionMsg "
    "management:bool=true!C",
    _CRD,
    deprecated={
        "addr": "host",
        "verifyHostName": "verifyHostname",
        "logMessage": "messageLoggingComponents",
        "protocolFamily": "socketAddressFamily",
    },
)
SSL_PROFILE = _type(
    "sslProfile",
    _COMMON + "caCertFile!C certFile!C privateKeyFile!C password!C passwordFile!C ciphers!C protocols!C "
    "uidFormat!C "
    "uidNameMappingFile!C",
    _CRD,
    deprecated={"certDb": "caCertFile", "keyFile": "privateKeyFile", "displayNameFile": "uidNameMappingFile"},
)
AUTH_SERVICE_PLUGIN = _type("authServicePlugin", _COMMON + "host=127.0.0.1!C port=amqp!C realm!C sslProfile!C", _CRD)
POLICY = _type(
    "policy",
    _COMMON + "maxConnections:int=65535!C maxMessageSize:int=0!C enableVhostPolicy:bool=false!C "
    "enableVhostNamePatterns:bool=false!C policyDir=!C defaultVhost=$default!C connectionsProcessed:int "
    "connectionsDenied:int "
    "connectionsCurrent:int linksDenied:int maxMessageSizeDenied:int totalDenials:int",
    singleton=True,
)
LOG = _type(
    "log",
    _COMMON + "module=DEFAULT!C enable=default!CU includeTimestamp:bool!CU includeSource:bool!CU outputFile!CU",
    "READ UPDATE",
)

ROUTER_CONFIG = _attributes(
    "name id mode:standalone|interior|edge=interior "
    "defaultDistribution:multicast|closest|balanced|unavailable=balanced "
    "allowResumableLinkRoute:bool=true metadata"
)
"""Attributes of the router entity in the configuration file."""

TYPES: dict[str, EntityType] = {
    t.short: t
    for t in (
        CONFIG_ADDRESS,
        CONFIG_LINK_ROUTE,
        CONFIG_AUTO_LINK,
        ADDRESS,
        LINK,
        CONNECTION,
        ROUTER,
        NODE,
        LISTENER,
        CONNECTOR,
        SSL_PROFILE,
        AUTH_SERVICE_PLUGIN,
        POLICY,
        LOG,
    )
}
ALIASES = {
    "address": "router.config.address",
    "linkRoute": "router.config.linkRoute",
    "autoLink": "router.config.autoLink",
}
"""Short spellings of the configuration file."""


def find_type(name: str) -> EntityType | None:
    """Return the entity type for a long, short or configuration-file name."""
    short = name.removeprefix(PREFIX)
    return TYPES.get(short) or (TYPES.get(ALIASES[short]) if short in ALIASES else None)


_ADDRESSES: Final = ("prefix", "pattern")
"""Texts for which a number does not stand, while it does for a port."""


def coerce(attribute: Attribute, value: Any) -> Any:
    """Convert `value` to the attribute's kind. Raises ManagementError 400 naming the attribute."""
    kind = attribute.kind
    if kind == "bool":
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            low = value.lower()
            if low in ("true", "yes", "on", "1"):
                return True
            if low in ("false", "no", "off", "0"):
                return False
        elif isinstance(value, int):
            return bool(value)
    elif kind == "int":
        if isinstance(value, int):
            return int(value)
        if isinstance(value, str) and (number := whole_number(value, signed=True)) is not None:
            return number
    elif kind == "enum":
        if isinstance(value, str) and value in attribute.choices:
            return str(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(attribute.choices):
            return attribute.choices[value]
    elif kind == "map":
        if isinstance(value, dict):
            return value
    elif kind == "list":
        if isinstance(value, list):
            return value
    elif kind == "names":
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            return ",".join(value)
        if isinstance(value, str):
            return str(value)
    elif isinstance(value, str):
        return str(value)
    elif isinstance(value, int) and not isinstance(value, bool) and attribute.name not in _ADDRESSES:
        return str(int(value))
    raise ManagementError(
        BAD_REQUEST, f"Invalid value for attribute '{attribute.name}': {value!r} is not {_article(attribute)}"
    )


def _article(attribute: Attribute) -> str:
    if attribute.kind == "enum":
        return "one of " + ", ".join(attribute.choices)
    kinds = {
        "bool": "a boolean",
        "int": "an integer",
        "map": "a map",
        "list": "a list",
        "names": "text or a list of it",
    }
    return kinds.get(attribute.kind, "a string")


def known_attributes(kind: EntityType, body: dict[str, Any]) -> None:
    """Check the names of attributes. Raises ManagementError 400 for an unknown one; requests about the core's entities
    may contain unknown ones, the configuration file may not."""
    for key in body:
        if kind.deprecated.get(key, key) not in kind.columns:
            raise ManagementError(BAD_REQUEST, f"Unknown attribute '{key}' for '{kind.name}'")


def read_body(kind: EntityType, name: str | None, body: Any) -> dict[str, Any]:
    """Return the body of a CREATE with deprecated spellings replaced, values coerced and defaults filled in.

    Types of the core ignore keys they do not know, the others refuse them. Raises ManagementError 400.
    """
    if not isinstance(body, dict):
        raise ManagementError(BAD_REQUEST, "Body of request must be a map")
    given: dict[str, Any] = {}
    for key, value in body.items():
        new = kind.deprecated.get(key, key)
        if new in given:
            raise ManagementError(BAD_REQUEST, f"Both '{new}' and its deprecated spelling are given for '{kind.name}'")
        given[str(new)] = value
    body_name = given.pop("name", None)
    given.pop("type", None)
    identity = given.pop("identity", None)
    if not kind.core:
        if name is not None and body_name is not None and name != body_name:
            raise ManagementError(BAD_REQUEST, f"Conflicting values for 'name': '{name}' and '{body_name}'")
        if identity is not None:
            raise ManagementError(BAD_REQUEST, "Cannot set attribute 'identity' in CREATE")
    result: dict[str, Any] = {}
    for attribute in kind.attributes:
        key = attribute.name
        if key in given:
            value = given.pop(key)
            if value is None:
                result[key] = attribute.default
                continue
            if not attribute.create:
                if kind.core:
                    continue
                raise ManagementError(BAD_REQUEST, f"Cannot set attribute '{key}' in CREATE")
            result[key] = coerce(attribute, value)
        else:
            result[key] = attribute.default
        if attribute.required and result[key] is None and not kind.core:
            raise ManagementError(BAD_REQUEST, f"Missing required attribute '{key}'")
    if given and not kind.core:
        raise ManagementError(BAD_REQUEST, f"Unknown attribute '{next(iter(given))}' for '{kind.name}'")
    result["name"] = name if name is not None else body_name
    return result
