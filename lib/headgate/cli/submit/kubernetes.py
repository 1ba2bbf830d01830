"""`headgate submit kubernetes`: a Job whose pods continue from the journal on a volume."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from cyclopts import Parameter

from headgate.cli.output import say
from headgate.cli.submit.evaluation import ENDS_CHAIN, DryRun, Evaluation, Links, Words, evaluation_of, sent
from headgate.core.errors import InvalidInputError

HOME: Final = "/var/lib/headgate"
"""Mount point of the volume in the container, and working directory of the evaluation."""

_USER: Final = 10001
_FILES_BYTES: Final = 1_000_000
"""Most bytes of the files sent along; a Kubernetes object has at most 1 MiB."""


def kubernetes(
    *words: Words,
    image: Annotated[str, Parameter(help="Image with Headgate, as deployments/Dockerfile makes it.")],
    volume: Annotated[str, Parameter(help="PersistentVolumeClaim for journal and store; the working directory.")],
    namespace: Annotated[str, Parameter(help="Namespace of the Job. Default: that of kubectl's context.")] = "",
    secret: Annotated[str, Parameter(help="Secret whose entries become variables: keys, HEADGATE_STORE.")] = "",
    cpu: Annotated[str, Parameter(help="CPUs that a pod requests.")] = "1",
    memory: Annotated[str, Parameter(help="Memory request and limit of a pod.")] = "2Gi",
    links: Links = 20,
    dry_run: DryRun = False,
) -> None:
    """Send an evaluation to Kubernetes, as a Job whose pods continue by themselves until everything is evaluated.

    A pod that is told to end stores what it has; the next one continues from the journal on the volume, also after
    a pod that was killed. Pods that were evicted do not count as links. Files that the options name (roster,
    rubric, prices, limits, settings) are sent along; variables of this shell are not.

    `headgate submit kubernetes --image … --volume eval -- run --roster roster.yaml --instances 100`
    """
    evaluation = evaluation_of(words, links)
    _refuse_unseen(evaluation)
    files = _sent_along(evaluation)
    place = {"namespace": namespace} if namespace else {}
    job = _job(evaluation, place, image, volume, secret, {"cpu": cpu, "memory": memory}, links, tuple(files))
    text = yaml.safe_dump_all([*_secret(evaluation, place, files), job], sort_keys=False)
    if dry_run:
        sys.stdout.write(text)
        return
    say(sent(("kubectl", "create", "-f", "-"), text))
    within = f"kubectl -n {namespace}" if namespace else "kubectl"
    say(
        f"`{within} logs -f job/{evaluation.name}` follows it; `{within} delete job/{evaluation.name} "
        f"secret/{evaluation.name} --ignore-not-found` ends and removes it, and leaves the volume"
    )


def _job(
    evaluation: Evaluation,
    place: dict[str, str],
    image: str,
    volume: str,
    secret: str,
    requests: dict[str, str],
    links: int,
    files: tuple[str, ...],
) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [{"name": "home", "mountPath": HOME}]
    mounts += [
        {"name": "files", "mountPath": path, "subPath": f"file-{n}", "readOnly": True} for n, path in enumerate(files)
    ]
    volumes: list[dict[str, Any]] = [{"name": "home", "persistentVolumeClaim": {"claimName": volume}}]
    volumes += [{"name": "files", "secret": {"secretName": evaluation.name}}] if files else []
    container = {
        "name": "headgate",
        "image": image,
        "workingDir": HOME,
        # Kubernetes expands `$(NAME)` in arguments, and `$$` to a dollar sign.
        "command": ["headgate", *(word.replace("$", "$$") for word in evaluation.words)],
        **({"envFrom": [{"secretRef": {"name": secret}}]} if secret else {}),
        "resources": {"requests": requests, "limits": {"memory": requests["memory"]}},
        "volumeMounts": mounts,
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": evaluation.drain_s,
        "securityContext": {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER},
        "containers": [container],
        "volumes": volumes,
    }
    failing = {"containerName": "headgate", "operator": "In", "values": [status for status in ENDS_CHAIN if status]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": evaluation.name, **place},
        "spec": {
            "backoffLimit": links - 1,
            "podReplacementPolicy": "Failed",  # never two pods on one journal
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailJob", "onExitCodes": failing},
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {"spec": pod},
        },
    }


def _secret(evaluation: Evaluation, place: dict[str, str], files: dict[str, str]) -> list[dict[str, Any]]:
    """Return the object that holds the files: a Secret, since a roster may state keys."""
    if not files:
        return []
    data = {f"file-{n}": text for n, text in enumerate(files.values())}
    metadata = {"name": evaluation.name, **place}
    return [{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}]


def _sent_along(evaluation: Evaluation) -> dict[str, str]:
    """Return the texts of the files that the evaluation names, by their paths in the container."""
    try:
        files = {os.path.join(HOME, path): Path(path).read_text(encoding="utf-8") for path in evaluation.files}  # noqa: PTH118 - as written
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"a file that the evaluation names cannot be read: {error}") from None
    if (count := sum(len(text.encode()) for text in files.values())) > _FILES_BYTES:
        raise InvalidInputError(
            f"the files that the evaluation names have {count:,} bytes, and {_FILES_BYTES:,} can be sent along",
            next_step=f"Put them into the image, or onto the volume, whose folder is {HOME}.",
        )
    return {os.path.normpath(path): text for path, text in files.items()}


def _refuse_unseen(evaluation: Evaluation) -> None:
    """Refuse folders that vanish with the pod."""
    for option, place in evaluation.folders.items():
        path = os.path.normpath(os.path.join(HOME, place))  # noqa: PTH118 - a path in the container, not on this machine
        if path != HOME and not path.startswith(f"{HOME}/"):
            raise InvalidInputError(
                f"{option} {path} is not on the volume, so that the next pod would not see it",
                next_step=f"Name a folder below {HOME}, such as .headgate, or keep it in S3 and in PostgreSQL.",
            )
