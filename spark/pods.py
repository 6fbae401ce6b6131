"""Programs of the telemetry pipeline's pods, when executors are pods of their own (charts/enmasse).

`python -m spark.pods driver ARGUMENT…` deletes the pods of executors that a killed driver has left, and
becomes `python -m spark.pipeline ARGUMENT…`. `python -m spark.pods executor` becomes the executor that
Spark's Kubernetes support describes in the environment of its pod.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from enmasse.http.client import Client

EXECUTORS = "ENMASSE_EXECUTORS"
"""Variable of the driver: labels of its executors' pods, as a selector."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS = 30
MOST = 256 << 20
"""Bytes of an answer, which lists the pods."""
OPTION = "SPARK_JAVA_OPT_"
CLASS = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Argument of CLASS → the variable that has it."""
MASTER = "-Dspark.master=k8s://"
"""Without it Spark does not read `spark.authenticate.secret.file`. The driver states the master, after the login."""


def executor(environment: Mapping[str, str]) -> list[str]:
    """Return the command of an executor. Raises KeyError for a variable that is missing."""
    numbered = {name[len(OPTION) :]: value for name, value in environment.items() if name.startswith(OPTION)}
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    command = [f"{environment['JAVA_HOME']}/bin/java", MASTER, *(numbered[n] for n in sorted(numbered, key=int))]
    command += [f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{environment['SPARK_HOME']}/jars/*", CLASS]
    return command + [word for option, name in ARGUMENTS.items() for word in (option, environment[name])]


def delete_executors(labels: str) -> None:
    """Delete all pods with these labels in the pod's own namespace. Raises OSError, also if it is refused, and
    ValueError."""
    host, port = (os.environ[f"KUBERNETES_SERVICE_{part}"] for part in ("HOST", "PORT"))
    namespace, token = ((ACCOUNT / name).read_text() for name in ("namespace", "token"))
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    client = Client(host, int(port), context, SECONDS)
    path = f"/api/v1/namespaces/{namespace}/pods?{urllib.parse.urlencode({'labelSelector': labels})}"
    answer = client.request("DELETE", path, {"Authorization": f"Bearer {token}"}, most=MOST)
    client.close()
    if answer.status >= 400:
        raise OSError(f"DELETE {path}: {answer.status} {answer.body.decode(errors='replace')}")


def main() -> NoReturn:
    """Become a driver or an executor."""
    role, *words = sys.argv[1:]
    if role == "executor":
        command = executor(os.environ)
    else:
        delete_executors(os.environ[EXECUTORS])
        command = [sys.executable, "-m", "spark.pipeline", *words]
    os.execv(command[0], command)  # noqa: S606 - words of this module and of Spark, without a shell


if __name__ == "__main__":
    main()
