"""Requests to the API server in this process: kubectl takes 0.1 s of processor time for each, and waits ask often."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.kit.waiting import DEADLINE

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Api:
    """The API server at `url`, as the user with this token. `authority`: file with the certificate to trust."""

    def __init__(self, url: str, token: str, authority: Path) -> None:
        self._url, self._token = url, token
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._places: dict[str, tuple[str, str, bool]] = {}
        """Path of the version, plural, and True if in a namespace, by each name of a kind."""

    def ask(self, method: str, path: str, body: Any = None, accept: str = "application/json") -> Any:
        """Return the open answer. Raises OSError; urllib.error.HTTPError if the answer is an error."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        request = urllib.request.Request(self._url + path, method=method, headers=headers)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        return urllib.request.urlopen(request, timeout=DEADLINE, context=self._tls)

    def get(self, kind: str, name: str, namespace: str, selector: str) -> Any:
        """Return an object, or without `name` the list of those that `selector` chooses, as `kubectl get` shows them.

        Raises OSError, and KeyError if there is no such kind.
        """
        version, plural, has_namespace = self._place(kind)
        place = f"namespaces/{namespace}/" if has_namespace else ""
        query = f"?labelSelector={quote(selector)}" if selector else ""
        found = self._load(f"{version}/{place}{plural}{f'/{name}' if name else ''}{query}")
        objects = [found] if name else found["items"]
        for each in objects:
            each["metadata"].pop("managedFields", None)
            each.setdefault("apiVersion", found["apiVersion"])
            each.setdefault("kind", found["kind"].removesuffix("List"))
        return found if name else objects

    def _place(self, kind: str) -> tuple[str, str, bool]:
        if kind not in self._places:
            self._discover()
        return self._places[kind]

    def _discover(self) -> None:
        for root in ("/api", "/apis"):
            for group in self._load(root, DISCOVERY)["items"]:
                name, preferred = group["metadata"].get("name", ""), group["versions"][0]
                version = "/".join(filter(None, (root, name, preferred["version"])))
                for each in preferred["resources"]:
                    plural = each["resource"]
                    for word in (plural, each["singularResource"], f"{plural}.{name}"):
                        self._places.setdefault(word, (version, plural, each["scope"] == "Namespaced"))

    def _load(self, path: str, accept: str = "application/json") -> Any:
        while True:
            try:
                with self.ask("GET", path, accept=accept) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != HTTPStatus.TOO_MANY_REQUESTS:  # as for a kind that was defined a moment ago
                    raise
                # pause: as long as the server wants
                time.sleep(float(error.headers["Retry-After"]))
