"""Persistent volumes for claims: what the provisioner of a storage class does elsewhere."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
from pathlib import Path
from typing import Any

from tests.kubernetes.api import Api

CLASS = "test"
PAUSE = 0.5
"""Seconds until it asks again, if the API server was not there."""


class Provisioner(threading.Thread):
    """Makes a volume for each claim of the class CLASS, as a folder in `place` on the node `node`."""

    def __init__(self, api: Api, place: Path, node: str | None = None) -> None:
        """`node`: None if no pod ever looks into its volumes: all nodes have them then."""
        super().__init__(name="provisioner", daemon=True)
        self._api, self._place, self._node = api, place, node
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError, ValueError):
                self._watch()
            self._ended.wait(PAUSE)

    def end(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        path = "/api/v1/persistentvolumeclaims"
        with self._api.ask("GET", f"{path}?watch=1&resourceVersion=0&timeoutSeconds=300") as events:
            for line in events:
                event = json.loads(line)
                claim = event["object"]
                spec = claim.get("spec", {})
                unbound = event["type"] in ("ADDED", "MODIFIED") and not spec.get("volumeName")
                if unbound and spec.get("storageClassName") == CLASS:
                    self._provide(claim)
                if self._ended.is_set():
                    return

    def _provide(self, claim: dict[str, Any]) -> None:
        about, spec = claim["metadata"], claim["spec"]
        folder = self._place / about["uid"]
        if self._node:
            folder.mkdir(parents=True, exist_ok=True)
        place: dict[str, Any] = {"hostPath": {"path": str(folder)}}
        if self._node:
            term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [self._node]}
            here = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
            place = {"local": {"path": str(folder)}, "nodeAffinity": here}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{about['uid']}"},
            "spec": {
                "storageClassName": CLASS,
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": about["namespace"], "name": about["name"], "uid": about["uid"]},
                **place,
            },
        }
        try:
            with self._api.ask("POST", "/api/v1/persistentvolumes", volume):
                pass
        except urllib.error.HTTPError as error:
            if error.code != 409:  # it is there
                raise
