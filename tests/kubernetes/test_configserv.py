"""configserv with ConfigMaps, against a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import proton
from proton.utils import BlockingConnection

from enmasse.kubernetes.api_server import ApiServer, connect
from enmasse.model import edits
from enmasse.model.merged import FilePart
from enmasse.testing import wait_for
from services.configserv.drivers.kubernetes import Kind, KubernetesDriver, KubernetesSettings
from tests.kit.waiting import DEADLINE
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.running import FLAVORS, Pod, config_map, grant, pods

QUEUE = {"type": "queue", "flavor": "q"}


def addresses(pod: Pod) -> set[str]:
    return set(pod.feed("addresses")["addresses"])


def errors(pod: Pod) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod.feed("status")["errors"]
    return found


def test_configmaps_are_one_configuration_and_errors_name_them(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    user = grant(cluster, namespace, "configserv")
    with pods(tmp_path, cluster, namespace, "one", user=user) as (one,):
        one.run()
        wait_for("it says what is missing", lambda: "no ConfigMap has the label" in str(one.state.get("detail")))
        cluster.apply(
            config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS}),
            config_map("enmasse-addresses", "addresses", {}),
            namespace=namespace,
        )
        one.wait_ready()
        assert addresses(one) == set()

        cluster.apply(
            config_map("enmasse-addresses", "addresses", {"addresses.json": {"a": {"type": "anycast"}}}),
            config_map("team", "addresses", {"more.json": {"b": QUEUE, "c": {"type": "queue"}}, "notes": "no json"}),
            namespace=namespace,
        )
        wait_for("both are read", lambda: addresses(one) == {"a", "b"})
        (error,) = errors(one)
        assert (error["file"], error["entry"], error["field"]) == ("configmap/team/more.json", "c", "flavor")
        assert error["line"] is not None

        # The same entry in two: both are named, and what applied before stays.
        cluster.apply(
            config_map("team", "addresses", {"more.json": {"a": {"type": "multicast"}, "b": QUEUE}}),
            namespace=namespace,
        )
        wait_for("the error is there", lambda: [each["entry"] for each in errors(one)] == ["a"])
        (error,) = errors(one)
        assert error["file"] == "configmap/enmasse-addresses/addresses.json"
        assert "configmap/team/more.json" in error["reason"]
        assert one.feed("addresses")["addresses"]["a"]["type"] == "anycast"

        # A part that cannot be read: the others apply, and nothing is removed.
        cluster.apply(
            config_map("enmasse-addresses", "addresses", {"addresses.json": {"d": {"type": "anycast"}}}),
            config_map("team", "addresses", {"more.json": '{"b": '}),
            namespace=namespace,
        )
        wait_for("the rest applies", lambda: addresses(one) == {"a", "b", "d"})

        # Killed, and started while it is still broken: the last good configuration is in the cluster.
        one.kill()
        one.run()
        one.wait_ready()
        assert addresses(one) == {"a", "b", "d"}
        cluster.apply(config_map("team", "addresses", {"more.json": {"b": QUEUE}}), namespace=namespace)
        wait_for("it is removed now", lambda: addresses(one) == {"b", "d"})
        cluster.kubectl("delete", "configmap", "team", "--namespace", namespace)
        wait_for("a ConfigMap's entries go with it", lambda: addresses(one) == {"d"})
        cluster.kubectl("label", "configmap", "enmasse-addresses", "enmasse.io/config-", "--namespace", namespace)
        wait_for("no ConfigMap is no empty one", lambda: errors(one))
        assert addresses(one) == {"d"}
        assert one.stop() == 0


def test_a_configmap_remains_what_the_release_made_it_for(cluster: Cluster, tmp_path: Path) -> None:
    """Who may edit addresses may edit the label of their ConfigMap: it is refused then, and nothing is removed."""
    namespace = cluster.namespace()
    user = grant(cluster, namespace, "configserv")
    own = {"a": {"type": "anycast"}, "b": QUEUE}
    cluster.apply(
        config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS}),
        config_map("enmasse-addresses", "addresses", {"addresses.json": own}),
        config_map("team", "addresses", {"addresses.json": {"c": {"type": "anycast"}}}),
        namespace=namespace,
    )
    with pods(tmp_path, cluster, namespace, "one", user=user) as (one,):
        made = {"addresses": ["enmasse-addresses"], "flavors": ["enmasse-flavors"]}
        one.settings["driver"] = {"kind": "kubernetes", "namespace": namespace, "config_maps": made}
        one.file.write_text(json.dumps(one.settings))
        one.start()
        one.wait_ready()
        assert addresses(one) == {"a", "b", "c"}
        for kind in ("flavors", "brokers"):
            more = {"addresses.json": {"mine": {"type": "queue", "templateName": "queue-persisted"}}}
            cluster.apply(config_map("enmasse-addresses", kind, more), namespace=namespace)
            expected = f"its label enmasse.io/config is '{kind}', and the release made it for addresses: set the label"
            wait_for("it is refused", lambda: any(expected in each["reason"] for each in errors(one)))
            (error,) = errors(one)
            assert error["file"] == "configmap/enmasse-addresses"
            assert addresses(one) == {"a", "b", "c"} and set(one.feed("flavors")["flavors"]) == {"q"}
            wait_for("it says so", lambda: one.status("enmasse-addresses")["errors"] == [error])
        cluster.apply(
            config_map("enmasse-addresses", "addresses", {"addresses.json": {"b": QUEUE}}), namespace=namespace
        )
        wait_for("it counts again", lambda: addresses(one) == {"b", "c"})


def test_the_status_is_beside_each_configmap(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    user = grant(cluster, namespace, "configserv", addresses=["team"], flavors=["other"])
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "team-status"}, "data": {"mine": "1"}}
    with pods(tmp_path, cluster, namespace, "one", user=user) as (one,):
        cluster.apply(
            foreign,
            config_map("enmasse-flavors", "flavors", {"flavors.json": {**FLAVORS, "x": {"type": "queue"}}}),
            config_map("enmasse-addresses", "addresses", {"addresses.json": {"a": {"type": "anycast"}, "b": {}}}),
            config_map("team", "addresses", {"addresses.json": {"c": {"type": "anycast"}}}),
            config_map("an-unnamed", "addresses", {"addresses.json": {"d": {"type": "anycast"}}}),  # forbidden to it
            namespace=namespace,
        )
        one.start()
        wait_for("it is written", lambda: one.status("enmasse-addresses").get("errors"))
        found = one.status("enmasse-addresses")
        assert [each["name"] for each in found["addresses"]] == ["a", "b"]
        assert [(each["file"], each["entry"]) for each in found["errors"]] == [
            ("configmap/enmasse-addresses/addresses.json", "b")
        ]
        (flavor,) = one.status("enmasse-flavors")["errors"]
        assert flavor["entry"] == "x"
        item = cluster.get("configmap", "enmasse-addresses-status", namespace=namespace)
        (owner,) = item["metadata"]["ownerReferences"]
        assert owner["name"] == "enmasse-addresses"
        # It is written no more as long as nothing differs; somebody else's is left alone.
        cluster.apply(
            config_map("enmasse-addresses", "addresses", {"addresses.json": {"a": {"type": "anycast"}}}),
            namespace=namespace,
        )
        wait_for("the next one", lambda: not one.status("enmasse-addresses")["errors"])
        later = cluster.get("configmap", "enmasse-addresses-status", namespace=namespace)
        for version in range(3):
            cluster.apply(
                config_map("other", "flavors", {"flavors.json": json.dumps({"x": version})}), namespace=namespace
            )
            wait_for("it was seen", lambda: one.status("other"))
        same = cluster.get("configmap", "enmasse-addresses-status", namespace=namespace)
        assert (
            later["data"]["status.json"].split('"config"')[1].split("}")[1:]
            == (same["data"]["status.json"].split('"config"')[1].split("}")[1:])
        )
        assert cluster.get("configmap", "team-status", namespace=namespace)["data"] == {"mine": "1"}
        assert one.stop() == 0


def test_ten_thousand_addresses_in_ten_configmaps(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    user = grant(cluster, namespace, "configserv", addresses=[f"part-{part}" for part in range(10)])
    with pods(tmp_path, cluster, namespace, "one", user=user) as (one,):
        cluster.apply(config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS}), namespace=namespace)
        for part in range(10):
            content = {f"telemetry/site-{part}/device-{n}": QUEUE for n in range(1000)}
            file = tmp_path / f"{part}.json"
            file.write_text(json.dumps(config_map(f"part-{part}", "addresses", {"addresses.json": content})))
            # Not `apply`: it keeps a second copy in an annotation.
            cluster.kubectl("create", "--namespace", namespace, "-f", str(file))
        one.start()
        wait_for("all are there", lambda: len(addresses(one)) == 10_000)
        wait_for("each has its status", lambda: len(one.status("part-7").get("addresses", ())) == 1000)
        one.kill()
        cluster.kubectl("delete", "configmap", "part-3", "--namespace", namespace)
        one.start()
        wait_for("the others stay", lambda: len(addresses(one)) == 9000)


def test_the_api_server_away_and_back(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    user = grant(cluster, namespace, "configserv")

    def applied(pod: Pod, name: str) -> bool:
        pod.again()  # nobody leads while nobody can renew the Lease for more than 10 s
        with contextlib.suppress(proton.ProtonException):
            return addresses(pod) == {name}
        return False

    with pods(tmp_path, cluster, namespace, "one", user=user) as (one,):
        cluster.apply(
            config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS}),
            config_map("enmasse-addresses", "addresses", {"addresses.json": {"a": {"type": "anycast"}}}),
            namespace=namespace,
        )
        one.start()
        one.wait_ready()
        cluster.restart_api()
        change = {"addresses.json": {"b": {"type": "anycast"}}}
        cluster.apply(config_map("enmasse-addresses", "addresses", change), namespace=namespace)
        wait_for("the change is seen", lambda: applied(one, "b"))
        cluster.compact()  # 410 Gone for every watch that goes on
        change = {"addresses.json": {"c": {"type": "anycast"}}}
        cluster.apply(config_map("enmasse-addresses", "addresses", change), namespace=namespace)
        wait_for("the change is seen", lambda: applied(one, "c"))


CONFIGURED: dict[Kind, list[str]] = {
    "addresses": ["enmasse-addresses"],
    "flavors": ["enmasse-flavors"],
}
BY_HAND = '{\n  "a": {"type": "anycast"},   \n\n "b":{"type":\t"queue", "flavor": "q"}\n}\n'


def configured(pod: Pod, **change: Any) -> dict[str, Any]:
    """The result of a change that a console asks for."""
    connection = BlockingConnection(pod.settings["listen"], timeout=DEADLINE)
    try:
        answers = connection.create_receiver("configure", credit=1)
        change["if"] = change.pop("based", {})
        body = json.dumps({"id": 7, "kind": "addresses", **change})
        connection.create_sender("configure").send(proton.Message(body=body))
        found: dict[str, Any] = json.loads(answers.receive().body)
        assert found.pop("id") == 7
        return found
    finally:
        connection.close()


def test_a_change_of_an_entry_leaves_all_other_bytes_of_the_configmaps(cluster: Cluster, tmp_path: Path) -> None:
    """The console's changes: an entry is written where it is, a new one where the release has its own."""
    namespace = cluster.namespace()
    user = grant(cluster, namespace, "configserv", console=True)
    cluster.apply(
        config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS}),
        config_map("enmasse-addresses", "addresses", {}),
        config_map("a-team", "addresses", {"team.json": BY_HAND, "notes": "no json"}),
        namespace=namespace,
    )

    def data(name: str) -> dict[str, str]:
        return dict(cluster.get("configmap", name, namespace=namespace).get("data") or {})

    with pods(tmp_path, cluster, namespace, "one", user=user) as (one,):
        one.settings["driver"] = {"kind": "kubernetes", "namespace": namespace, "config_maps": CONFIGURED}
        one.file.write_text(json.dumps(one.settings))
        one.start()
        one.wait_ready()

        made = configured(one, set={"new": QUEUE}, based={"new": None})
        assert made["accepted"] and set(made["etags"]) == {"new"}, made
        assert json.loads(data("enmasse-addresses")["addresses.json"]) == {"new": QUEUE}
        assert data("a-team") == {"team.json": BY_HAND, "notes": "no json"}
        wait_for("it is in force", lambda: addresses(one) == {"a", "b", "new"})

        by_hand = '{"new":  {"flavor": "q", "type": "queue"},\n"other" : {"type": "anycast"}\n\n}'
        cluster.apply(config_map("enmasse-addresses", "addresses", {"addresses.json": by_hand}), namespace=namespace)
        wait_for("it is in force", lambda: "other" in addresses(one))
        changed = configured(one, set={"new": {"type": "multicast"}}, based={"new": made["etags"]["new"]})
        assert changed["accepted"], changed
        text = data("enmasse-addresses")["addresses.json"]
        assert text == '{"new": {"type": "multicast"},\n"other" : {"type": "anycast"}\n\n}'

        for wrong in (
            {"set": {"new": QUEUE}, "based": {"new": made["etags"]["new"]}},  # changed since
            {"set": {"other": QUEUE}, "based": {"other": None}},
            {"set": {"bad": {"type": "nonsense"}}},
            {"set": {"bad": {"type": "queue", "flavor": "none"}}},
            {"remove": ["new"], "check": True},
        ):
            refused = configured(one, **wrong)
            assert (
                refused["accepted"] is bool(wrong.get("check")) and data("enmasse-addresses")["addresses.json"] == text
            )

        # Where this service may not write, and what nobody can write by it.
        refused = configured(one, remove=["a"])
        assert not refused["accepted"] and "configmap/a-team cannot be written" in refused["errors"][0]["reason"]
        assert data("a-team")["team.json"] == BY_HAND
        refused = configured(one, kind="users", set={"alice": {}})
        assert refused["errors"][0]["reason"].startswith("users are in a Secret: change users.json with `enmasse user`")
        assert configured(one, remove=["new", "other"])["accepted"]
        assert json.loads(data("enmasse-addresses")["addresses.json"]) == {}
        wait_for("both are removed", lambda: addresses(one) == {"a", "b"})
        assert one.stop() == 0


def test_an_edit_by_hand_during_a_change_is_not_lost(cluster: Cluster) -> None:
    """The resourceVersion has changed then: the ConfigMap is read again, and the change made in what is there now."""
    namespace = cluster.namespace()
    user = grant(cluster, namespace, "configserv", console=True)
    cluster.apply(config_map("enmasse-addresses", "addresses", {"addresses.json": BY_HAND}), namespace=namespace)
    server = ApiServer(cluster.url, cluster.token(user), str(cluster.authority.file))
    api = connect(namespace=namespace, server=server)
    settings = KubernetesSettings(kind="kubernetes", namespace=namespace, config_maps=CONFIGURED)
    seen: list[bytes] = []

    def edit(sources: Sequence[FilePart], place: str) -> dict[str, bytes]:
        (source,) = sources
        seen.append(source.data)
        if len(seen) <= 2:
            text = BY_HAND.replace('"a"', f'"hand-{len(seen)}": {{}}, "a"')
            edited = config_map("enmasse-addresses", "addresses", {"addresses.json": text, "more.txt": "x"})
            cluster.apply(edited, namespace=namespace)
        return {place: edits.add(source.data.decode(), "made", QUEUE).encode()}

    async def change() -> None:
        await KubernetesDriver(settings, api).edit("addresses.json", edit)

    asyncio.run(change())
    found = cluster.get("configmap", "enmasse-addresses", namespace=namespace)["data"]
    assert len(seen) == 3 and seen[0].decode() == BY_HAND
    assert set(json.loads(found["addresses.json"])) == {"hand-2", "a", "b", "made"} and found["more.txt"] == "x"
    assert '\n\n "b":{"type":\t"queue", "flavor": "q"}' in found["addresses.json"]


def holder(cluster: Cluster, namespace: str) -> str:
    found = cluster.get("leases", namespace=namespace)
    return str(found[0]["spec"].get("holderIdentity", "")) if found else ""


def test_one_leads_and_one_that_was_paused_too_long_does_nothing_more(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    user = grant(cluster, namespace, "configserv")
    with pods(tmp_path, cluster, namespace, "one", "two", "three", user=user) as (one, two, three):
        cluster.apply(
            config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS}),
            config_map("enmasse-addresses", "addresses", {"addresses.json": {"a": {"type": "anycast"}}}),
            namespace=namespace,
        )
        one.run()
        one.wait_ready()
        two.run()
        wait_for("the second stands by", lambda: two.state.get("detail") == "stands by: one leads")
        assert two.state["ready"] is True and two.get("/livez") == (200, "live\n")

        # Given back: the next one has it at once.
        assert one.stop() == 0
        two.wait_ready()
        three.run()
        wait_for("the third stands by", lambda: three.state.get("detail") == "stands by: two leads")

        # Paused for longer than its Lease lasts.
        assert two.process is not None
        os.kill(two.process.pid, signal.SIGSTOP)
        three.wait_ready()
        assert holder(cluster, namespace) == "three"
        change = {"addresses.json": {"b": {"type": "anycast"}}}
        cluster.apply(config_map("enmasse-addresses", "addresses", change), namespace=namespace)
        wait_for("the new one reads", lambda: addresses(three) == {"b"})
        size = two.log.stat().st_size
        os.kill(two.process.pid, signal.SIGCONT)
        assert two.process.wait(DEADLINE) == 3
        last = two.log.read_bytes()[size:].decode().splitlines()
        assert [line for line in last if "lease enmasse-configserv is lost" in line] == last
        assert holder(cluster, namespace) == "three" and addresses(three) == {"b"}

        # Killed: another one takes over when the Lease has expired.
        three.kill()
        two.run()
        two.wait_ready()
        assert holder(cluster, namespace) == "two"
