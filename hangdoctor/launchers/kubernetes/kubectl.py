"""The user's own kubectl: its command lines, and what it says where it cannot."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence

from msgspec import Struct

from ...errors import HangdoctorError, LauncherError, UsageError
from .. import gather
from ..remote import Outcome, query
from ..slurm_job import clean_environment

_ASK_S = 10.0  # for the API server to list pods
_LOG_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d")

_REFUSALS: tuple[tuple[str, type[HangdoctorError], str, str], ...] = (
    (
        r"(?i)forbidden",
        LauncherError,
        "the cluster does not allow this",
        "You need the rights to get pods and to create pods/exec in that namespace: "
        "kubectl auth can-i create pods/exec -n NAMESPACE",
    ),
    (
        r"(?i)unauthorized|must be logged in|getting credentials",
        LauncherError,
        "the cluster does not accept your credentials",
        "Log in again; then `kubectl get pods` must work.",
    ),
    (
        r"(?i)connection refused|was refused|unable to connect|no such host|i/o timeout",
        LauncherError,
        "the cluster's API server does not answer",
        "`kubectl get pods` must work here: check KUBECONFIG and the context (--context).",
    ),
    (
        r"(?i)doesn't have a resource type|could not find the requested resource",
        UsageError,
        "the cluster does not know this kind of job",
        "Use a label selector instead: --k8s LABEL=VALUE.",
    ),
    (
        r"(?i)unable to parse requirement|invalid label|selector",
        UsageError,
        "the cluster does not understand this label selector",
        "Write it as for `kubectl get pods -l`: app=bloom,role in (master,worker)",
    ),
)


class Kubectl(Struct, frozen=True):
    """kubectl with the flags that choose cluster and namespace; "" leaves them to its configuration."""

    namespace: str = ""
    context: str = ""

    def argv(self, *words: str) -> list[str]:
        """The command line."""
        chosen = []
        if self.context:
            chosen.append(f"--context={self.context}")
        if self.namespace:
            chosen.append(f"--namespace={self.namespace}")
        return ["kubectl", *chosen, *words]

    def shown(self, *words: str) -> str:
        """The command line as a person types it."""
        chosen = [f"--context {self.context}"] if self.context else []
        chosen += [f"-n {self.namespace}"] if self.namespace else []
        return " ".join(["kubectl", *chosen, *words])

    def ask(self, words: Sequence[str], seconds: float = _ASK_S) -> str:
        """What kubectl prints.

        Raises:
            LauncherError, UsageError: it cannot, in plain words.
        """
        outcome = self.outcome(words, seconds)
        if outcome.code == 0:
            return outcome.output
        raise self._refused(outcome, words, seconds)

    def outcome(self, words: Sequence[str], seconds: float = _ASK_S) -> Outcome:
        """What came of one call, whatever that is.

        Raises:
            LauncherError: there is no kubectl.
        """
        if shutil.which("kubectl") is None:
            raise LauncherError(
                "kubectl was not found",
                "Run this where kubectl works, or put it on PATH; --k8s uses nothing else.",
            )
        return query(self.argv(*words), seconds, clean_environment(os.environ))

    def _refused(self, outcome: Outcome, words: Sequence[str], seconds: float) -> HangdoctorError:
        said = _plain_words(outcome.errors)
        if outcome.code is None:
            return LauncherError(
                f"kubectl did not answer within {seconds:.0f} s",
                f"Try it by hand: {self.shown(*words[:2])}",
            )
        known = gather.refused([outcome.errors], _REFUSALS)
        if known is not None:
            return type(known)(f"{known} (kubectl: {said})", known.help)
        return LauncherError(f"kubectl failed: {said or f'exit code {outcome.code}'}")


def _plain_words(errors: str) -> str:
    """What kubectl says to a person, without the lines of its log (``E1123 06:16:35.215927 ...``)."""
    lines = [line for line in errors.splitlines() if not _LOG_LINE.match(line)]
    return gather.last_words("\n".join(lines) or errors)
