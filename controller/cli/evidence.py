"""The operator's evidence API as the person of a kubeconfig. Used by `status`, `history` and the actions."""

from typing import Any

from controller.adapters.evidence_client import EvidenceProblem, fetch
from controller.cli.kube import Cluster


def where_and_who(cluster: Cluster) -> tuple[str, str]:
    """URL and token; EvidenceProblem, in a sentence, where one of them is not known."""
    url, token = cluster.evidence_url(), cluster.token()
    if not url:
        raise EvidenceProblem("No evidence API is known (--url, $WEIGHLOCK_URL, ConfigMap weighlock-info).")
    if not token:
        raise EvidenceProblem("Your kubeconfig signs in with a certificate; the evidence API needs a token.")
    return url, token


def fetch_evidence(cluster: Cluster, name: str, path: str = "", **params: Any) -> Any:
    """One answer about a rollout of the cluster's namespace; EvidenceProblem where there is none."""
    url, token = where_and_who(cluster)
    return fetch(url, token, cluster.namespace, name, path, **params)
