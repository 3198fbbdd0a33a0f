"""The words of a diff for people: what a mechanism, a ledger and a correctness class mean, in a phrase each.

Called by the screens and sentences of a diff. The names themselves stay beside the phrases, because policies, metrics
and reports use them.
"""

from __future__ import annotations

LEDGERS = {
    "W": "bytes of weights",
    "A": "compute",
    "KV": "KV-cache memory",
    "LAUNCH": "launch overhead",
    "SCHED": "queueing and batching",
    "COMM": "traffic between GPUs",
    "STEPS": "steps per token",
    "COLD": "start-up time",
}
CLASSES = {
    "semantic-exact": "the same answers up to rounding (near-ties may fall the other way)",
    "distribution-exact": "other samples of the same distribution",
    "approximate": "answers may get worse: quality has to be tested",
    "contract-change": "answers or limits differ on purpose; latency alone is no comparison",
    "none": "answers stay the same",
}
SHORT_CLASSES = {
    "semantic-exact": "same up to rounding",
    "distribution-exact": "same distribution",
    "approximate": "quality at risk, test it",
    "contract-change": "differ on purpose",
    "none": "unchanged",
}
MECHANISMS = {
    "activation_quant": "number format of activations",
    "attention_backend": "which attention kernels run",
    "aux_output": "what is returned beside the text",
    "chart_values": "values of the Helm chart",
    "custom_resource": "fields of the custom resource",
    "chunked_prefill": "how long prompts are cut into pieces",
    "credentials": "secrets",
    "cuda_graph_compile": "compiled and recorded GPU programs",
    "determinism": "how repeatable the arithmetic is",
    "engine": "which engine serves",
    "engine_environment": "variables of the engine",
    "engine_version": "the engine's own code",
    "environment": "variables of the container",
    "generation": "how answers are generated",
    "kernel_backend": "which GPU kernels run",
    "kv_offload": "KV cache outside of GPU memory",
    "kv_quant": "number format of the KV cache",
    "lifecycle": "start, probes and shutdown",
    "limits": "what requests are accepted",
    "lora": "adapters",
    "model_identity": "which model answers",
    "mounted_file": "a mounted file",
    "multimodal": "images, audio and video",
    "network": "how clients reach the server",
    "observability": "logs and metrics",
    "paged_kv": "how KV-cache memory is divided",
    "parallelism": "how the model is spread over GPUs",
    "pd_disagg": "prefill and decode on separate pods",
    "placement": "on which nodes the pods run",
    "prefix_cache": "reuse of what equal prompts computed",
    "routing": "which replica gets a request",
    "sampling_defaults": "how the next token is drawn",
    "scheduler": "which requests run together, and when",
    "spec_decode": "guessing tokens ahead with a draft",
    "structured_output": "holding answers to a schema, tool calls",
    "tokenizer_template": "how text becomes tokens",
    "topology": "which roles serve together",
    "unknown_flag": "a flag that the catalogue does not know",
    "weight_loading": "how weights are loaded",
    "weight_offload": "weights outside of GPU memory",
    "weight_quant": "number format of the weights",
}


def mechanism_words(name: str) -> str:
    """``which requests run together, and when (scheduler)``; the bare name where it says enough."""
    return f"{MECHANISMS[name]} ({name})" if name in MECHANISMS else name.replace("_", " ")


def ledger_words(ledgers: tuple[str, ...]) -> str:
    """``queueing and batching, KV-cache memory``; "nothing that is measured" for none."""
    return ", ".join(LEDGERS.get(ledger, ledger) for ledger in ledgers) or "nothing that is measured"
