"""The cluster as the person of a kubeconfig, for `status`, `history` and the actions.

Used by those commands only; the import of the Kubernetes client is paid here and nowhere else in the CLI.
"""

import argparse
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError
from yaml import YAMLError

from controller.cli.errors import BadInput
from crds.v1alpha1.common import GROUP, VERSION

INFO_CONFIG_MAP = "weighlock-info"
SYSTEM_NAMESPACE = "weighlock-system"
T = TypeVar("T")
_config: Any = config  # these functions publish no types


def register_cluster(parser: argparse.ArgumentParser) -> None:
    """Options that every cluster command takes, named as kubectl's."""
    parser.add_argument("-n", "--namespace", help="namespace (default: the context's)")
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument("--kubeconfig", help="kubeconfig file (default: $KUBECONFIG, ~/.kube/config)")
    parser.add_argument("--url", help="evidence API (default: $WEIGHLOCK_URL, else what the cluster's ConfigMap says)")
    parser.add_argument(
        "--system-namespace", default=SYSTEM_NAMESPACE, help=f"where Weighlock runs (default: {SYSTEM_NAMESPACE})"
    )


class Refused(BadInput):
    """The API server answered that this person may not; `problem` holds its sentence."""


class Cluster:
    """One person at one cluster. All methods raise BadInput with the server's own sentence."""

    def __init__(self, args: argparse.Namespace) -> None:
        source = args.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        try:
            self._client: Any = _config.new_client_from_config(args.kubeconfig, args.context, persist_config=False)
            self.namespace = args.namespace or _context_namespace(args) or "default"
        except (ConfigException, OSError) as error:
            problem = " ".join(str(error).split())
            raise BadInput(source, "", problem, "name a kubeconfig with --kubeconfig or $KUBECONFIG") from None
        except (YAMLError, TypeError, KeyError, AttributeError, ValueError):  # the client trusts the file's shape
            raise BadInput(source, "", "is no kubeconfig", "name one with --kubeconfig or $KUBECONFIG") from None
        self._client.configuration.retries = False
        self._objects: Any = client.CustomObjectsApi(self._client)
        self._args = args

    def rollouts(self, everywhere: bool = False) -> list[dict[str, Any]]:
        """InferenceRollouts of the namespace, or of all."""
        if everywhere:
            answer = self._ask(lambda: self._objects.list_cluster_custom_object(GROUP, VERSION, "inferencerollouts"))
        else:
            answer = self._ask(
                lambda: self._objects.list_namespaced_custom_object(GROUP, VERSION, self.namespace, "inferencerollouts")
            )
        return sorted(answer["items"], key=lambda r: (r["metadata"]["namespace"], r["metadata"]["name"]))

    def rollout(self, name: str) -> dict[str, Any]:
        """One InferenceRollout."""
        answer = self._ask(
            lambda: self._objects.get_namespaced_custom_object(
                GROUP, VERSION, self.namespace, "inferencerollouts", name
            ),
            name,
        )
        return dict(answer)

    def create_action(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Create a RolloutAction as this person."""
        answer = self._ask(
            lambda: self._objects.create_namespaced_custom_object(
                GROUP, VERSION, self.namespace, "rolloutactions", dict(obj)
            ),
            f"{obj['spec']['action']} {obj['spec']['rollout']}",
        )
        return dict(answer)

    def user(self) -> str:
        """The user name that the API server knows this person by."""
        api: Any = client.AuthenticationV1Api(self._client)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        return str(self._ask(lambda: api.create_self_subject_review(body)).status.user_info.username)

    def token(self) -> str:
        """This person's bearer token, "" where the kubeconfig signs in with a certificate."""
        header = str(self._client.configuration.get_api_key_with_prefix("BearerToken") or "")
        return header.removeprefix("Bearer ").strip()

    def evidence_url(self) -> str:
        """Where the evidence API is, "" where nobody says."""
        given = self._args.url or os.environ.get("WEIGHLOCK_URL")
        if given:
            return str(given)
        api: Any = client.CoreV1Api(self._client)
        try:
            found = api.read_namespaced_config_map(INFO_CONFIG_MAP, self._args.system_namespace)
        except (ApiException, HTTPError):
            return ""  # optional: the commands say that there is no evidence API
        return str((found.data or {}).get("evidenceURL") or "")

    def _ask(self, call: Callable[[], T], what: str = "") -> T:
        try:
            return call()
        except ApiException as error:
            raise _words(error, what or f"namespace {self.namespace}", self.namespace) from None
        except HTTPError as error:
            host = self._client.configuration.host
            raise BadInput(host, "", f"does not answer ({type(error).__name__})", "check the cluster") from None


def _context_namespace(args: argparse.Namespace) -> str | None:
    contexts, active = _config.list_kube_config_contexts(args.kubeconfig)
    chosen = next((c for c in contexts if c["name"] == args.context), active) if args.context else active
    namespace = (chosen or {}).get("context", {}).get("namespace")
    return str(namespace) if namespace else None


def _words(error: ApiException, what: str, namespace: str) -> BadInput:
    message = _message(error)
    if error.status == 404 and "could not find the requested resource" in message:
        return BadInput(what, "", "this cluster does not know InferenceRollouts", "install the CRDs: weighlock crds")
    if error.status == 404:
        return BadInput(what, "", f"there is no such InferenceRollout in {namespace}", "weighlock status lists them")
    if error.status == 401:
        return BadInput(what, "", "the cluster does not know you", "sign in again; your token may have expired")
    if error.status == 403:
        return Refused(what, "", f"refused: {message}", "ask whoever may")
    return BadInput(what, "", f"the API server says {error.status}: {message}", "see its log")


def _message(error: ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)
