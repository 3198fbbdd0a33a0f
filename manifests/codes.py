"""Every finding's code: its level, what it means, what to do. The docs page is generated from this table.

A code is stable; its level may be raised at the place where more is known (a removed flag with a known version is an
error).
"""

from __future__ import annotations

from manifests.model import Finding

# code -> (level, meaning, remedy)
CODES: dict[str, tuple[str, str, str]] = {
    "abbreviated-flag": (
        "info",
        "A flag is abbreviated; argparse accepts a unique prefix.",
        "Write the flag out: a later version with a similar flag refuses it.",
    ),
    "ambiguous-command": (
        "error",
        "Two containers of one pod look like model servers.",
        "Name the server: `--select NAME/CONTAINER`.",
    ),
    "ambiguous-flag": ("error", "An abbreviation fits more than one flag of this version.", "Write the flag out."),
    "ambiguous-precedence": (
        "warning",
        "Config file and command line disagree and this version's precedence is not known.",
        "State the value in one place only.",
    ),
    "background-engine": (
        "error",
        "A script starts the engine in the background and ends.",
        "End the script with `wait`, or start the engine in the foreground.",
    ),
    "bad-value": ("error", "The engine cannot convert a value and refuses to start.", "Correct the value."),
    "bool-with-value": ("warning", "A boolean flag is given a value.", "Use the flag alone, or its `--no-` form."),
    "branch-revision": (
        "warning",
        "The model has no revision, or one that is a branch: two pods may load different weights.",
        "Pin `--revision` to a commit.",
    ),
    "comma-list": (
        "error",
        "A list flag is given one comma-joined text where separate values are meant.",
        "Write one argument per value.",
    ),
    "config-false-ignored": (
        "warning",
        "A `false` in a vLLM config file is dropped by its reader.",
        "Write `no-FLAG: true`, or use the command line.",
    ),
    "config-file-not-found": (
        "warning",
        "A config file that the engine reads is not in the input.",
        "Add the ConfigMap to the input, or accept the values as unresolved.",
    ),
    "config-overridden": ("info", "A config file's value is overridden by the command line.", "Remove one of the two."),
    "context-limit-lowered": (
        "warning",
        "The new context limit is lower: long requests will be refused (capability reduced).",
        "Check the traffic's length buckets; refused requests count as bad.",
    ),
    "duplicate-flag": ("warning", "A flag is given twice; the last one counts.", "Remove one of the two."),
    "duplicate-key": (
        "warning",
        "A YAML key is written twice in one mapping; the last one counts.",
        "Remove one of the two.",
    ),
    "env-ignored": (
        "warning",
        "An environment variable is not read by this version.",
        "Delete it, or use the flag that replaced it.",
    ),
    "env-unread": (
        "info",
        "An environment variable looks like an engine's but is known to nobody.",
        "Check its spelling.",
    ),
    "expert-parallel-dense": (
        "info",
        "Expert parallelism is on; it does nothing for a dense model.",
        "Drop the flag unless the model is a mixture of experts.",
    ),
    "flag-and-value-in-one-token": (
        "error",
        "A flag and its value are one argument: the flag never reaches the engine.",
        "Make them two list items, or join them with `=`.",
    ),
    "flag-too-new": (
        "error",
        "A flag is younger than this version of the engine.",
        "Raise the engine's version or delete the flag.",
    ),
    "gpu-count": (
        "error",
        "The parallel layout needs more accelerators than the pods of one replica have.",
        "Lower the parallel size or raise the accelerator request.",
    ),
    "gpu-unused": (
        "warning",
        "The pods of one replica have more accelerators than the parallel layout uses.",
        "Lower the request or raise the parallel size.",
    ),
    "helm-placeholder": (
        "info",
        "A field holds a template placeholder that a controller fills in.",
        "None; the value is unresolved.",
    ),
    "host-localhost": (
        "warning",
        "The server listens on localhost only: no probe or Service reaches it.",
        "Set `--host 0.0.0.0`.",
    ),
    "image-placeholder": ("warning", "The image is a placeholder.", "Put the real image in before a rollout."),
    "lost-continuation": (
        "error",
        "A shell line continuation is lost: what follows never reaches the engine.",
        "End every line but the last with a backslash and nothing behind it.",
    ),
    "metrics-off": (
        "warning",
        "The engine's metrics are off: neither witnesses nor engine gates can be read.",
        "Switch them on (`--enable-metrics`, `return_perf_metrics`, `--metrics`).",
    ),
    "missing-configmap": (
        "error",
        "A referenced ConfigMap is not in the input.",
        "Add it: a diff without it cannot know the effective values.",
    ),
    "missing-model": ("warning", "No model is named anywhere.", "Name it, or accept the engine's default."),
    "missing-value": ("error", "A flag that takes a value has none.", "Give the value."),
    "moving-tag": (
        "warning",
        "The image tag moves (or is missing): two pods may run different engines.",
        "Pin a version tag or a digest.",
    ),
    "no-effective-change": (
        "error",
        "Something was written but nothing that the engine gets differs.",
        "See the other findings: a flag that never arrives is usually the cause.",
    ),
    "not-a-string": ("warning", "An argument or variable is no string; Kubernetes refuses it.", "Quote it."),
    "patch": (
        "warning",
        "A Kustomize patch: only what it sets is known.",
        "Render first (`kubectl kustomize`) for the whole manifest.",
    ),
    "removed-later": (
        "warning",
        "A flag was removed in a later version of the engine; this one is not known.",
        "Delete the flag before the engine is updated.",
    ),
    "quoted-value": (
        "error",
        "A JSON value starts with a quote character: the quotes are part of the value.",
        "Remove the inner quotes.",
    ),
    "removed-flag": (
        "error",
        "A flag was removed from the engine: it refuses to start.",
        "Delete the flag or use its replacement.",
    ),
    "secret-in-argv": (
        "warning",
        "A secret stands on the command line.",
        "Read it from a Secret through the environment.",
    ),
    "secret-in-env": ("warning", "A secret stands in the manifest in the clear.", "Use `valueFrom.secretKeyRef`."),
    "several-engines": ("warning", "One script starts more than one engine.", "Split them into containers."),
    "shell-syntax": ("warning", "A shell text does not parse completely.", "Check quotes and continuations."),
    "shell-too-deep": ("warning", "Scripts call each other too deeply to follow.", "Start the engine directly."),
    "shell-too-long": ("warning", "A script is too long to follow.", "Start the engine directly."),
    "shm-missing": (
        "info",
        "Tensor parallelism without a /dev/shm volume: collectives may fail.",
        "Mount an emptyDir of medium Memory at /dev/shm.",
    ),
    "spec-relaxed": (
        "warning",
        "A relaxed acceptance rule makes speculation approximate.",
        "Gate it by task quality, or use the exact rule.",
    ),
    "stray-argument": ("warning", "An argument belongs to no flag.", "Remove it."),
    "stream-interval": (
        "warning",
        "Several tokens per chunk: gaps between chunks are no token intervals.",
        "Gate TPOT by token counts, never by chunk gaps.",
    ),
    "suspicious-whitespace": (
        "error",
        "A blank at the end or inside of an argument is part of it.",
        "Remove the blank or the quotes.",
    ),
    "unknown-flag": (
        "warning",
        "A flag that the catalogue does not know.",
        "Check its spelling and the engine's version.",
    ),
    "unknown-short-flag": ("error", "A short flag that the engine does not have.", "Write the long flag."),
    "unprofitable-mechanism": (
        "info",
        "A mechanism that this configuration will not profit from.",
        "Read the reason; drop it unless it was measured.",
    ),
    "unused-argument": (
        "error",
        "A flag stands behind a `sh -c` text that does not use its arguments: it never reaches the engine.",
        'Move it into the text, or end the text with `"$@"` behind a word for `$0`.',
    ),
    "version-unsampled": (
        "warning",
        "The defaults of this engine version are not in the catalogue.",
        "Treat unset values as unresolved, or use a surveyed version.",
    ),
    "visible-devices": (
        "warning",
        "CUDA_VISIBLE_DEVICES hides accelerators that the parallel layout needs.",
        "Remove the variable.",
    ),
    "never-runs": (
        "error",
        "A command stands behind a server that stays in the foreground.",
        "Start the first one with `&`, or put them into containers of their own.",
    ),
    "variable-defaults": (
        "info",
        "Environment variables whose default differs between the two versions and which nobody sets.",
        "Read the engine's release notes for those that you rely on.",
    ),
    "new-switch-on": (
        "info",
        "A switch that the older version does not have is on by default in the newer one.",
        "Read what it does before the update.",
    ),
}


def make_finding(code: str, message: str, file: str = "", path: str = "", level: str | None = None) -> Finding:
    """A finding with its code's level (or a raised one); an unlisted code is a programming error and raises
    KeyError."""
    return Finding(code, level or CODES[code][0], file, path, message)
