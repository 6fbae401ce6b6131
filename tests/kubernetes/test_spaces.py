"""Address spaces whose files are ConfigMaps, against a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from enmasse.kubernetes.api_server import ApiServer, connect
from enmasse.model import edits
from enmasse.model.configuration import AppliedState
from enmasse.model.merged import FilePart
from enmasse.model.tenants.plans import Plans
from enmasse.model.tenants.tenancy import SpaceState, TenantState
from enmasse.model.users import User
from enmasse.testing import wait_for
from services.configserv.drivers.kubernetes import KubernetesDriver, KubernetesSettings
from services.configserv.state.user_secrets import SHARDS, UserSecrets
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.running import FLAVORS, Pod, config_map, grant, pods

ANYCAST = {"type": "anycast"}
ALICE = {"alice": {"permissions": [{"allow": ["send"], "addresses": ["a"]}]}}


def addresses(pod: Pod) -> set[str]:
    return set(pod.feed("addresses")["addresses"])


def errors(pod: Pod) -> list[tuple[str, str]]:
    return [(each["file"], each["reason"]) for each in pod.feed("status")["errors"]]


@contextlib.contextmanager
def spaces(cluster: Cluster, folder: Path) -> Iterator[Pod]:
    """A configserv with the spaces `one`, whose ConfigMap the release has made, and `two`."""
    namespace = cluster.namespace()
    options = ["--set=configuration.spaces.one={one-addresses}"]
    user = grant(cluster, namespace, "configserv", console=True, options=options)
    cluster.apply(
        config_map("enmasse-flavors", "flavors", {"flavors.json": FLAVORS}),
        config_map("enmasse-addresses", "addresses", {"addresses.json": {"a": ANYCAST}}),
        config_map("enmasse-spaces", "spaces", {"spaces.json": {"one": {}, "two": {}}}),
        config_map("enmasse-plans", "plans", {}),
        config_map("one-addresses", "addresses", {"addresses.json": {"a": ANYCAST, "b": {}}}, "one"),
        config_map("team", "addresses", {"any.json": {"a": ANYCAST}}, "two"),
        namespace=namespace,
    )
    with pods(folder, cluster, namespace, "one", user=user) as (pod,):
        kinds = {name: [f"enmasse-{name}"] for name in ("addresses", "flavors", "spaces", "plans")}
        own = {"config_maps": kinds, "spaces": {"one": ["one-addresses"]}}
        pod.settings["driver"] = {"kind": "kubernetes", "namespace": namespace, **own}
        pod.file.write_text(json.dumps(pod.settings))
        yield pod


def test_a_space_has_configmaps_and_a_status_beside_them_that_names_no_other(cluster: Cluster, tmp_path: Path) -> None:
    with spaces(cluster, tmp_path) as pod:
        cluster_, namespace = pod.cluster, pod.namespace
        pod.start()
        pod.wait_ready()
        assert addresses(pod) == {"a", "!!one/a", "!!two/a"}
        wait_for("it is written", lambda: pod.status("one-addresses").get("addresses"))
        own = pod.status("one-addresses")
        assert [each["name"] for each in own["addresses"]] == ["!!one/a", "!!one/b"]
        assert [each["file"] for each in own["errors"]] == ["configmap/one-addresses/addresses.json"]
        assert "two" not in json.dumps(own) and list(own["config"]) == ["spaces/one/addresses.json"]
        general = pod.status("enmasse-addresses")
        assert [each["name"] for each in general["addresses"]] == ["a"] and general["errors"] == []

        # Who may edit the addresses of one space may edit the label of their ConfigMap.
        cluster_.apply(
            config_map("one-addresses", "addresses", {"addresses.json": {"mine": ANYCAST}}, "two"), namespace=namespace
        )
        expected = "its label enmasse.io/space is 'two', and the release made it for 'one': set the label back"
        wait_for("it is refused", lambda: any(reason.startswith(expected) for _, reason in errors(pod)))
        assert addresses(pod) == {"a", "!!one/a", "!!two/a"}
        cluster_.apply(
            config_map("one-addresses", "addresses", {"addresses.json": {"a": ANYCAST}}, "one"),
            config_map("team", "addresses", {"any.json": "{"}, "two"),
            namespace=namespace,
        )
        wait_for("the other one is broken", lambda: [file for file, _ in errors(pod)] == ["configmap/team/any.json"])

        # Killed, and started while it is broken: the last good configuration is in the cluster.
        pod.kill()
        pod.start()
        pod.wait_ready()
        assert addresses(pod) == {"a", "!!one/a", "!!two/a"}
        cluster_.apply(config_map("stray", "addresses", {"any.json": {}}, "three"), namespace=namespace)
        reason = "'three' is no valid address space of spaces.json: add it there, or remove this"
        wait_for("it is named", lambda: ("configmap/stray/any.json", reason) in errors(pod))
        cluster_.apply(config_map("enmasse-spaces", "spaces", {"spaces.json": {"one": {}}}), namespace=namespace)
        wait_for("a space goes with its entry", lambda: addresses(pod) == {"a", "!!one/a"})


def test_an_edit_in_a_space_writes_its_configmap(cluster: Cluster, tmp_path: Path) -> None:
    with spaces(cluster, tmp_path) as pod:
        settings = KubernetesSettings(kind="kubernetes", namespace=pod.namespace, spaces={"one": ["one-addresses"]})
        server = ApiServer(
            cluster.url, cluster.token(f"{pod.namespace}/enmasse-configserv"), str(cluster.authority.file)
        )
        api = connect(namespace=pod.namespace, server=server)

        def edit(sources: Sequence[FilePart], home: str) -> dict[str, bytes]:
            text = next(each.data for each in sources if each.name == home).decode()
            return {home: edits.put(text, {"new": ANYCAST}).encode()}

        async def main() -> None:
            driver = KubernetesDriver(settings, api)
            await driver.edit("spaces/one/addresses.json", edit)
            await driver.edit("plans.json", edit)

        asyncio.run(main())

        def data(name: str) -> Any:
            found = cluster.get("configmap", name, namespace=pod.namespace)["data"]
            return {key: json.loads(text) for key, text in found.items()}

        assert data("one-addresses") == {"addresses.json": {"a": ANYCAST, "b": {}, "new": ANYCAST}}
        assert data("enmasse-plans") == {"plans.json": {"new": ANYCAST}}
        assert data("enmasse-addresses") == {"addresses.json": {"a": ANYCAST}}


def test_users_of_spaces_come_from_mounted_secrets_and_outlive_them(cluster: Cluster, tmp_path: Path) -> None:
    own, more = tmp_path / "enmasse-users", tmp_path / "more"
    own.mkdir()
    more.mkdir()
    (own / "users.json").write_text(json.dumps({"admin": {}}))
    (own / "one.users.json").write_text(json.dumps(ALICE))
    (more / "users.json").write_text(json.dumps({"bob": {}, "admin": {}}))
    (more / "two.users.json").write_text("{")
    with spaces(cluster, tmp_path) as pod:
        options = ["--set=configuration.spaces.one={one-addresses}", "--set=users.enabled=true"]
        grant(cluster, pod.namespace, "authserv", "Secret", options=options)
        grant(cluster, pod.namespace, "configserv", console=True, options=options)
        pod.settings["driver"] |= {"users": str(own / "users.json"), "more_users": [str(more)]}
        pod.file.write_text(json.dumps(pod.settings))
        pod.start()
        pod.wait_ready()
        permissions = pod.feed("permissions/changes")
        assert set(permissions["users"]) == {"bob"} and set(permissions["in_spaces"]) == {"!!one/alice"}
        found = dict(errors(pod))
        assert "is in secret/more/users.json" in found["users.json"]
        assert "secret/more/two.users.json" in found
        wait_for("it is written", lambda: pod.status("one-addresses").get("addresses"))
        assert "two" not in json.dumps(pod.status("one-addresses"))

        (own / "one.users.json").unlink()
        pod.kill()
        pod.start()
        pod.wait_ready()
        assert set(pod.feed("permissions/changes")["in_spaces"]) == {"!!one/alice"}, "from the Secret of the state"
        state = cluster.get("configmap", "enmasse-configserv-state", namespace=pod.namespace)
        assert "alice" not in json.dumps(state)


def test_more_users_than_a_secret_holds_are_kept_in_several(cluster: Cluster) -> None:
    namespace = cluster.namespace()
    server = ApiServer(cluster.url, cluster.token("admin"), str(cluster.authority.file))
    api = connect(namespace=namespace, server=server)

    def users(count: int) -> dict[str, User]:
        return {f"user-{number}": User(password=secrets.token_hex(300)) for number in range(count)}

    def state(count: int) -> AppliedState:
        tenants = TenantState(spaces={"one": SpaceState(users=users(count)), "two": SpaceState()}, plans=Plans({}, {}))
        return AppliedState(users=users(count), salt_key=b"k" * 32, tenants=tenants)

    def saved() -> AppliedState:
        """Return what another process finds."""
        other = UserSecrets(api, "state", {})
        other.open()
        bare = TenantState(spaces={"one": SpaceState(), "two": SpaceState()}, plans=Plans({}, {}))
        return other.added_to(AppliedState(tenants=bare))

    store = UserSecrets(api, "state", {})
    store.open()
    assert not store.known
    small, large = state(3), state(1500)
    store.put(small)
    assert store.save() == ""
    assert len(cluster.get("secrets", namespace=namespace)) == 1 and saved() == small
    store.put(large)
    assert store.save() == ""
    assert len(cluster.get("secrets", namespace=namespace)) == 1 + SHARDS and saved() == large
    store.put(small)
    assert store.save() == ""
    assert saved() == small
