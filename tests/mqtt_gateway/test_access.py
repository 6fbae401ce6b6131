"""Permissions of MQTT clients, and what the gateway does with a publish that is not allowed."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from enmasse.bridge.client_access import NOBODY, ClientAccess
from enmasse.identity.login import Login
from enmasse.identity.mqtt_permissions import denied, may_keep, may_subscribe, name_of, names_of, without_permission
from enmasse.identity.principal import Principal
from enmasse.model import feeds
from enmasse.model.addresses import Address
from enmasse.model.feeds import GrantedUser
from enmasse.model.issuers import Issuer
from enmasse.model.names import AddressName
from enmasse.model.topic_map import FilterRefused, TopicMap
from enmasse.model.users import Permission
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import Will
from services.mqtt_gateway.amqp.mapping import TopicRoute
from services.mqtt_gateway.amqp.session import without_address
from services.mqtt_gateway.amqp.topic_access import may_have_replies, may_send
from services.mqtt_gateway.interfaces import Refused, Request
from tests.authserv.published import AUDIENCE, Published
from tests.authserv.running import Running, user
from tests.configserv.running import FLAVORS, Configserv
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.mqtt_gateway.environment import ADDRESSES, Device, Router, environment, nothing

TOPICS = TopicMap(
    {
        AddressName("t"): Address(type="topic", flavor="f"),
        AddressName("rest"): Address(type="topic", flavor="f", mqtt_default=True),
        AddressName("q"): Address(type="queue", flavor="f"),
        AddressName("m"): Address(type="multicast"),
    }
)
ALICE = Login(Principal("alice"), "1")


def granted(*addresses: str, credentials: str = "1", effect: Any = "allow") -> GrantedUser:
    permission = Permission(effect=effect, operations=("send", "recv"), addresses=addresses)
    return GrantedUser(permissions=(permission,), credentials=credentials)


def of(*addresses: str) -> ClientAccess:
    access = ClientAccess(enabled=True)
    access.users.take(feeds.PermissionChanges(users={"alice": granted(*addresses)}))
    return access


@pytest.mark.parametrize(
    ("filter", "names"),
    [
        ("t/a.b/+", ["t/a%2Eb/+"]),
        ("x/+", ["rest/x/+"]),
        ("x/y", ["rest/x/y"]),
        ("+/x", ["rest/+/x", "t/x"]),
        ("q", ["q"]),
        ("q/#", ["q/#"]),
        ("m/a.b/+", ["m/a%2Eb/+"]),
        ("t", ["t"]),
    ],
)
def test_the_names_that_a_filter_matches(filter: str, names: list[str]) -> None:
    assert sorted(TOPICS.wire_filters(filter)) == sorted(names)


def test_a_filter_of_no_address_has_no_names() -> None:
    with pytest.raises(FilterRefused):
        TOPICS.wire_filters("q/x")


@pytest.mark.parametrize(
    ("patterns", "filter", "allowed"),
    [
        (("t/a/#",), "t/a/+", True),
        (("t/a/#",), "t/+/a", False),
        (("t/#",), "+/x", False),
        (("t/#", "rest/#"), "+/x", True),
        (("t/#",), "$share/g/t/x", True),
        (("rest/x/#",), "x/#", True),
        (("q",), "q", True),
        (("q",), "q/#", False),
        (("q/#",), "q/#", True),
        (("m/a/*",), "m/a/+", True),
        (("m/a/*",), "m/a/#", False),
        (("t/a.b",), "t/a.b", False),  # on AMQP its name is t/a%2Eb
        (("t/a%2Eb",), "t/a.b", True),
        ((), "q/x", True),  # the subscription service refuses it
        # names of the addresses that exist
        (("t/#", "rest/#"), "#", True),
        (("t/#",), "#", False),
        (("#",), "#", True),
    ],
)
def test_subscriptions(patterns: tuple[str, ...], filter: str, allowed: bool) -> None:
    rights = of(*(patterns or ("none",))).rights(ALICE)
    assert rights is not None
    assert may_keep(rights, TOPICS, filter) is allowed


NO_DEFAULT = TopicMap(
    {AddressName("q"): Address(type="queue", flavor="f"), AddressName("t"): Address(type="topic", flavor="f")}
)


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        ("q/#", "q/x", True),  # the subscription service refuses it
        ("q", "q/x", False),
        ("none", "q/x", False),
        ("none", "no/x", False),
        ("no/#", "no/x", True),
        ("no/a%2Eb", "no/a.b", True),
        ("t/#", "t/x", True),
        ("none", "t/x", False),
    ],
)
def test_a_client_does_not_learn_which_addresses_there_are(pattern: str, name: str, allowed: bool) -> None:
    """What no address takes is refused as what one takes; who may use the name gets the reason."""
    rights = of(pattern).rights(ALICE)
    assert rights is not None
    for filter in (name, f"$share/g/{name}"):
        assert may_subscribe(rights, NO_DEFAULT, filter) is allowed
    if name != "q/x":
        assert may_send(rights, NO_DEFAULT, name, TopicRoute.find(name, NO_DEFAULT)) is allowed
        assert may_have_replies(rights, NO_DEFAULT, name) is allowed
    assert may_send(rights, NO_DEFAULT, "$SYS/broker/connection/b/state", None)


@pytest.mark.parametrize(
    ("pattern", "topic", "allowed"),
    [
        ("t/a/#", "t/a/x", True),
        ("t/a/#", "t/b", False),
        ("rest/x", "x", True),
        ("x", "x", False),
        ("rest/x", "$share/g/x", False),  # of a message it is a topic as another
        ("rest/$share/g/x", "$share/g/x", True),
        ("q", "q", True),
        ("q", "q/x", False),
        ("q/x", "q/x", True),
        ("#", "$reply/_topo/0/r/temp.1", True),
        ("none", "$reply/_topo/0/r/temp.1", True),
        ("none", "$reply/_topo/0/r/q", False),
        ("none", "$reply/_topo/0/../q", False),
        ("none", "$reply/_topo/0/r/temp.1/q", False),
        ("none", "$reply/q", False),
        ("q", "$reply/q", True),
    ],
)
def test_publishing(pattern: str, topic: str, allowed: bool) -> None:
    rights = of(pattern).rights(ALICE)
    route = TopicRoute.find(topic, TOPICS)
    assert rights is not None
    assert route is not None
    assert may_send(rights, TOPICS, topic, route) is allowed
    assert topic.startswith("$reply/") or name_of(TOPICS, topic) == route.to


@pytest.mark.parametrize(
    ("topic", "named"),
    [
        ("x/y", "rest/x/y"),
        ("t/y", "rest/t/y"),
        ("q", "rest/q"),
        ("x/+", "rest/x/+"),
        ("rest/x", None),
        ("$SYS/x", None),
    ],
)
def test_a_refusal_names_what_permissions_are_judged_by(topic: str, named: str | None) -> None:
    """The client is told the same of a topic that an address takes, and so does not learn whether there is one."""
    text = without_permission(TOPICS, "send to", topic)
    assert text.startswith(f"no permission to send to {topic!r}") and ("Permissions have " in text) is bool(named)
    assert named is None or f"Permissions have this name if an address takes it, else {named!r}: " in text
    assert without_permission(NO_DEFAULT, "send to", topic) == f"no permission to send to {topic!r}"


def test_the_event_of_a_refusal_has_the_names_on_amqp() -> None:
    assert (
        denied("send to", "x/y", [name_of(TOPICS, "x/y")])
        == "no permission to send to 'x/y', in permissions 'rest/x/y'"
    )
    assert denied("send to", "t/y", [name_of(TOPICS, "t/y")]) == "no permission to send to 't/y'"
    assert denied("receive from", "t/#", names_of(TOPICS, "t/#")) == "no permission to receive from 't/#'"
    both = denied("receive from", "$share/g/t/#", names_of(TOPICS, "$share/g/t/#"))
    assert both == "no permission to receive from '$share/g/t/#', in permissions 't/#'"


def test_rights_are_the_same_object_while_nothing_changes_for_the_client() -> None:
    access = of("t/#")
    before = access.rights(ALICE)
    access.users.take(feeds.PermissionChanges(users={"alice": granted("t/#", credentials="2"), "bob": granted("#")}))
    assert access.rights(ALICE) is before
    access.users.take(feeds.PermissionChanges(users={"alice": granted("t/x")}))
    assert access.rights(ALICE) is not before
    access.users.take(feeds.PermissionChanges(anonymous=True))
    assert access.rights(ALICE) is None


def test_who_may_stay() -> None:
    access = ClientAccess(enabled=True)
    assert not access.users.known
    token = Login(Principal("carol", ("staff",)))
    access.users.take(feeds.PermissionChanges(anonymous=True))
    assert [access.users.loss(login) for login in (NOBODY, ALICE, token)] == ["", "", ""]
    access.users.take(feeds.PermissionChanges(users={"alice": granted("t/#")}))
    assert access.users.loss(NOBODY)
    assert [access.users.loss(login) for login in (ALICE, token)] == ["", ""]
    access.users.take(
        feeds.PermissionChanges(users={"alice": granted("t/#", credentials="2"), "anonymous": granted("t")})
    )
    assert access.users.loss(ALICE) == "the password of alice has changed"
    assert access.users.loss(NOBODY) == ""
    access.users.take(feeds.PermissionChanges(users={}))
    assert access.users.loss(ALICE) == "the user alice was removed"


def test_certificates_name_users() -> None:
    access = ClientAccess(enabled=True)
    access.users.take(feeds.PermissionChanges(users={"alice": granted("t/#"), "@staff": granted("t")}))
    login = access.users.by_certificate("alice")
    assert login == Login(Principal("alice", ALICE.principal.groups), certified=True)
    assert [access.users.by_certificate(name) for name in ("bob", "@staff", "anonymous", "")] == [None] * 4
    access.users.take(feeds.PermissionChanges(users={"alice": granted("t/#", credentials="2")}))
    assert access.users.loss(login) == ""
    access.users.take(feeds.PermissionChanges(users={}))
    assert access.users.loss(login) == "the user alice was removed"


def test_a_token_expires() -> None:
    now = 1000.0
    access = ClientAccess(enabled=True)
    access.users.today = lambda: now
    access.users.take(feeds.PermissionChanges(users={"alice": granted("t/#")}))
    logins = ALICE._replace(expires=2000), Login(Principal("carol"), None, 2000)
    assert [access.users.loss(login) for login in logins] == ["", ""]
    now = 2000.0
    assert [access.users.loss(login) for login in logins] == [
        f"the login of {name} has expired" for name in ("alice", "carol")
    ]
    access.users.take(feeds.PermissionChanges(anonymous=True))
    assert [access.users.loss(login) for login in logins] == ["", ""]


# --- a gateway in this process ----------------------------------------------------------------------------------------


@pytest.fixture
def configserv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configserv]:
    service = Configserv(tmp_path_factory.mktemp("configserv"))
    service.write("flavors.json", FLAVORS)
    service.write("addresses.json", ADDRESSES)
    entry = {"permissions": [{"allow": ["send", "recv"], "addresses": ["news"]}]}
    service.write("users.json", json.dumps({"alice": {"password": user("right").password, **entry}}))
    yield service.start()
    service.stop()


@pytest.mark.parametrize("drops", [False, True])
def test_publishing_of_3_1_1_without_permission(router: Router, configserv: Configserv, drops: bool) -> None:
    @asyncio_test
    async def run() -> None:
        async with environment(router, configserv) as found:
            more: dict[str, Any] = {"authserv": ("127.0.0.1", service.port), "drops_unauthorized": drops}
            backend = await found.backend(**more)
            login = {"username": "alice", "password": b"right"}
            device = await found.device(backend, "d1", version=4, login=login)
            assert "~alice/d1" in backend.sessions
            for qos in (1, 2, 0):
                device.publish("ask", qos=qos, packet_id=qos)
            dropped = backend.access.dropped
            if drops:
                assert [(number, reason) for number, reason, _ in device.outcomes] == [(1, 0), (2, 0)]
                device.session.release(2)
                await until(lambda: device.free == [2])
            else:
                refused = [(number, reason) for number, reason, _ in device.outcomes]
                assert refused == [(1, reasons.NOT_AUTHORIZED), (2, reasons.NOT_AUTHORIZED)]
                assert [reason for reason, _ in device.disconnected] == [reasons.NOT_AUTHORIZED]
            assert (dropped, backend.access.refused["publish"]) == (3 if drops else 0, 3)
            with pytest.raises(Refused):
                await backend.admit(
                    Request(client_id="x", clean=True, expiry=0, version=5, window=1), lambda: True, nothing
                )

    with Running() as service:
        service.users({"alice": user("right")})
        run()


@pytest.mark.parametrize("by_group", [False, True])
def test_the_dropped_will_of_a_removed_user_is_an_event(router: Router, configserv: Configserv, by_group: bool) -> None:
    """Also if a group, which the login of the user has stated, may still send there."""
    allowed = {"permissions": [{"allow": ["send", "recv"], "addresses": ["rest/#"]}]}
    alice = {"password": user("right").password, **({"groups": ["staff"]} if by_group else allowed)}
    others = {"@staff": allowed, "bob": {"password": user("other").password}}
    configserv.write("users.json", {**others, "alice": alice})

    @asyncio_test
    async def run() -> None:
        async with environment(router, configserv) as found:
            backend = await found.backend(authserv=("127.0.0.1", service.port))
            await until(lambda: backend.access.users.permissions.knows("bob"))
            events: list[dict[str, Any]] = []
            backend.bridge.refusals.seen = events.append
            will = Will("online", b"no", 1, True)
            device = await found.device(backend, will=will, login={"username": "alice", "password": b"right"})
            configserv.write("users.json", others)
            await until(lambda: bool(device.disconnected))
            assert [(each["what"], each["address"], each["names"]) for each in events] == [
                ("will", "online", ["rest/online"]),
                ("session", "", []),
            ]
            assert events[0]["reason"] == "the will was dropped: there is no user alice"
            assert events[0]["client"] == "~alice/d1"
            await until(lambda: ("will-clear", "~alice/d1") in found.wills.log)
            assert ("will-publish", "~alice/d1") not in found.wills.log

    with Running() as service:
        service.users({"alice": user("right", groups=("staff",) if by_group else ())})
        run()


@pytest.mark.parametrize("users", [True, False])
def test_a_page_that_may_be_of_any_site_is_not_the_anonymous_user(
    users: bool, router: Router, configserv: Configserv
) -> None:
    anonymous = {"permissions": [{"allow": ["send", "recv"], "addresses": ["news"]}]}
    if users:
        alice = {"password": user("right").password, **anonymous}
        configserv.write("users.json", json.dumps({"alice": alice, "anonymous": anonymous}))

    @asyncio_test
    async def run() -> None:
        async with environment(router, configserv) as found:
            more: dict[str, Any] = {"authserv": ("127.0.0.1", service.port)} if users else {}
            backend = await found.backend(**more)
            if users:
                await until(lambda: backend.access.users.permissions.knows("anonymous"))
            await found.device(backend, "program")
            with pytest.raises(Refused, match="--allowed-origin") as refusal:
                await found.device(backend, "page", login={"any_site": True})
            assert refusal.value.reason == reasons.NOT_AUTHORIZED
            if users:
                login = {"any_site": True, "username": "alice", "password": b"right"}
                await found.device(backend, "page", login=login)
            assert sorted(backend.sessions) == ["program", *(["~alice/page"] if users else [])]

    with Running() as service:
        service.users({"alice": user("right")})
        run()


def test_a_client_is_disconnected_when_its_token_expires(router: Router, configserv: Configserv) -> None:
    @asyncio_test
    async def run() -> None:
        async with environment(router, configserv) as found:
            backend = await found.backend(authserv=("127.0.0.1", service.port))
            backend.access.users.today = lambda: time.time() + 999

            async def device(seconds: int) -> Device:
                token = issuer.token(exp=int(time.time()) + seconds).encode()
                return await found.device(backend, f"d{seconds}", login={"username": "alice", "password": token})

            short, long = await device(1000), await device(5000)
            await until(lambda: bool(short.disconnected))
            assert short.disconnected == [(reasons.NOT_AUTHORIZED, "the login of alice has expired")]
            assert (backend.access.refused["session"], long.disconnected) == (1, [])
            assert list(backend.sessions) == ["~alice/d5000"]

    issuer = Published()
    with contextlib.closing(issuer), Running() as service:
        service.users({}, Issuer(issuer=issuer.url, audience=AUDIENCE, skew=0))
        run()


def test_why_no_address_takes_a_topic() -> None:
    assert "'x/y': publish to an address, or mark a topic address mqttDefault" in without_address("x/y")
    assert "has more than 200 levels; shorten it" in without_address("/".join("x" * 201))
