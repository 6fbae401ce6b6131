"""The Helm chart: certificates, passwords and other secrets are in the pods that need them, and in no others."""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path

import pytest

from enmasse.identity.processes.process_certificates import Certificate, CertifiedPeers, peer_of
from enmasse.identity.processes.roles import Peer, Role
from spark.pipeline import arguments as pipeline_arguments
from tests.kubernetes.charts import (
    CHART,
    DISPATCH,
    EVERYTHING,
    SETTINGS,
    SPARK,
    Object,
    all_pods,
    executor,
    objects,
    pods,
    rendered,
    values,
)
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import Refused

ISSUED = {"identity": {"issuer": {"name": "suite", "kind": "ClusterIssuer"}}}
ALL = {each: {"enabled": True} for each in ("users", "console", "http", "stomp", "coap")}
"""Values with all components."""
COMPONENTS = {component: component.replace("-", "_") for component in (*SETTINGS, "broker", "operator")}
"""Component → role."""


def folders(found: list[Object], folder: Path) -> dict[str, Path]:
    """Component → the certificate of its processes, as it is mounted."""
    made = {}
    for name, secret in objects(found, "Secret").items():
        component = name.removeprefix("enmasse-").removesuffix("-identity")
        if name.endswith("-identity"):
            assert secret["type"] == "kubernetes.io/tls"
            made[component] = folder / component
            made[component].mkdir()
            for file, data in secret["data"].items():
                (made[component] / file).write_bytes(base64.b64decode(data))
    return made


def test_certificates_of_processes_have_their_roles_and_hosts(cluster: Cluster, tmp_path: Path) -> None:
    """Each service that listens proves itself to the others under the names in their settings; no other one can."""
    found = rendered(cluster, ALL)
    certificates = folders(found, tmp_path)
    assert set(certificates) == set(COMPONENTS)
    dialled = {
        "configserv": "enmasse-configserv", "ragent": "enmasse-ragent", "router": "enmasse-router",
        "broker": "enmasse-orders-0.default.svc", "authserv": "enmasse-authserv",
    }  # fmt: skip
    for component, folder in certificates.items():
        listener = CertifiedPeers(folder).tls
        for other, host in dialled.items():
            peer = handshake(listener, Certificate(certificates["storage-controller"]).tls(), host)
            if component == other:
                assert peer == Peer("enmasse-storage-controller", Role.STORAGE_CONTROLLER, of_service=True)
            else:
                assert peer is None, (component, host)
    listener = CertifiedPeers(certificates["configserv"]).tls
    for component, role in COMPONENTS.items():
        peer = handshake(listener, Certificate(certificates[component]).tls(), "enmasse-configserv")
        assert peer == Peer(f"enmasse-{component}", Role(role), of_service=True)
        assert peer.may_be(f"enmasse-{component}-5d9f-abcde")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> Peer | None:
    """Return the peer that a listener sees; None if either side refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return None
    return peer_of(ends[1].getpeercert())


def test_pods_have_the_certificate_of_their_component(cluster: Cluster) -> None:
    """Every pod has the certificate of its own component, read-only, and no other."""
    found = rendered(cluster, {})
    for component, pod in pods(found).items():
        secrets = {v["secret"]["secretName"] for v in pod["spec"]["volumes"] if "secret" in v}
        identities = {name for name in secrets if "identity" in name}
        own = {"test": "enmasse-operator-identity"}.get(component, f"enmasse-{component}-identity")
        assert identities == (set() if component in ("redis", "spark-pipeline") else {own}), component
    executors = executor(rendered(cluster, SPARK))
    assert executors is not None
    assert [each.get("secret") for each in executors["spec"]["volumes"] if "secret" in each] == [
        {"secretName": "enmasse-spark-pipeline"}
    ]
    without = rendered(cluster, {"identity": {"enabled": False}})
    assert "identity" not in json.dumps([each for each in without if each["kind"] != "ConfigMap"])


def test_certificates_of_cert_manager(cluster: Cluster) -> None:
    found = rendered(cluster, {**ISSUED, **ALL})
    assert not [name for name in objects(found, "Secret") if "identity" in name]
    made = objects(found, "Certificate")
    assert {name.removeprefix("enmasse-").removesuffix("-identity") for name in made} == set(COMPONENTS)
    for each in made.values():
        spec = each["spec"]
        role, _, name = spec["commonName"].partition("/")
        assert spec["secretName"] == each["metadata"]["name"] == f"{name}-identity" and role in COMPONENTS.values()
        assert spec["issuerRef"] == {"name": "suite", "kind": "ClusterIssuer", "group": "cert-manager.io"}
        assert {"server auth", "client auth"} <= set(spec["usages"])
    with pytest.raises(Refused, match="cert-manager allows 64 characters"):
        long = cluster.helm("template", "r" * 30, str(CHART), "--values=-", stdin=json.dumps(ISSUED))
        assert not long


def test_the_password_of_redis_is_in_no_config_map(cluster: Cluster) -> None:
    found = rendered(cluster, DISPATCH)
    with_password = [each for each in found if "secret@redis" in json.dumps(each)]
    assert {each["kind"] for each in with_password} == {"Secret"} and len(with_password) == 2


@values
def test_secret_variables_of_traces_are_in_the_pods_that_trace(cluster: Cluster, values: Object) -> None:
    """Router, gateways and embedded brokers; Dispatch and Artemis make no spans."""
    traces = EVERYTHING["traces"] if values is DISPATCH else values.get("traces", {})
    made = all_pods(rendered(cluster, {**values, "traces": traces}), values)
    found = {
        component: container["envFrom"]
        for component, pod in made.items()
        for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
        if "envFrom" in container
    }
    tracing = ["mqtt-gateway"] if values is DISPATCH else ["router", "broker", "mqtt-gateway"]
    tracing += [f"{door}-gateway" for door in ("http", "stomp", "coap") if values.get(door, {}).get("enabled")]
    if values is EVERYTHING:
        tracing += ["mqtt-gateway-one", "mqtt-gateway-three", "router-one", "router-two"]
    assert found == {each: [{"secretRef": {"name": "collector"}}] for each in tracing if traces}


def test_redis_wants_a_password_that_its_clients_have(cluster: Cluster) -> None:
    """A file of each, from a Secret that others do not have."""
    found = rendered(cluster, {})
    secret = objects(found, "Secret")["enmasse-redis"]["data"]
    password = base64.b64decode(secret["password"]).decode()
    assert len(password) == 40
    assert base64.b64decode(secret["redis.conf"]).decode() == f"requirepass {password}\n"
    have = {}
    for component, pod in pods(found).items():
        for volume in pod["spec"]["volumes"]:
            if volume.get("secret", {}).get("secretName") == "enmasse-redis":
                have[component] = [each["key"] for each in volume["secret"]["items"]]
    assert have == {"redis": ["redis.conf"], "subserv": ["password"], "mqtt-lwt": ["password"]}
    assert "enmasse-redis" not in objects(rendered(cluster, DISPATCH), "Secret")


def test_the_pipeline_is_a_user_where_clients_are(cluster: Cluster) -> None:
    """Its driver, and its executors, which send results, have the password as a file, and nothing else has it."""
    release = {**SPARK, "users": {"enabled": True}}
    for own, name, secret in (
        ({}, "spark-pipeline", "enmasse-spark-pipeline-user"),
        ({"user": {"name": "meter", "secret": "ours"}}, "meter", "ours"),
    ):
        found = rendered(cluster, {**release, "sparkPipeline": {**SPARK["sparkPipeline"], **own}})
        (driver,) = pods(found)["spark-pipeline"]["spec"]["containers"]
        given = pipeline_arguments(driver["args"])
        assert given.user == name
        have = {}
        for component, pod in all_pods(found, release).items():
            for volume in pod["spec"]["volumes"]:
                if volume.get("secret", {}).get("secretName") == secret:
                    (container,) = pod["spec"]["containers"]
                    (place,) = [
                        each["mountPath"] for each in container["volumeMounts"] if each["name"] == volume["name"]
                    ]
                    have[component] = [f"{place}/{item['path']}" for item in volume["secret"]["items"]]
        assert have == {each: [given.password_file] for each in ("spark-pipeline", "spark-executor")}
        assert secret not in objects(found, "Secret"), "it is made by the commands in docs/kubernetes.md"
    (driver,) = pods(rendered(cluster, SPARK))["spark-pipeline"]["spec"]["containers"]
    assert pipeline_arguments(driver["args"]).user == ""
