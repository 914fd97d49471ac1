"""Somebody to ask who answers as a test tells them to."""

from collections import deque
from typing import Any

from toolgate.gates.approval.request import Answer, ApprovalRequest


class ScriptedApprover:
    """An approver whose answers are given beforehand, each for one question. Without one, nobody answers: the call is
    pending, as where no person is there."""

    def __init__(self) -> None:
        self.questions: list[ApprovalRequest] = []
        """The questions that were asked, in order."""
        self._answers: deque[Answer] = deque()
        self._always: Answer | None = None

    def approve(self, times: int | None = 1, *, reason: str | None = None) -> None:
        """Approve the next question, the next few, or all from now on (`times=None`)."""
        self._say(Answer("approve", reason), times)

    def reject(self, times: int | None = 1, *, reason: str | None = None) -> None:
        """Reject the next question, the next few, or all from now on (`times=None`)."""
        self._say(Answer("reject", reason), times)

    def edit(self, arguments: dict[str, Any], *, reason: str | None = None) -> None:
        """Approve the next question with these arguments in place of those that are asked about."""
        self._say(Answer("edit", reason, arguments), 1)

    @property
    def asked(self) -> int:
        """The number of questions."""
        return len(self.questions)

    def _say(self, answer: Answer, times: int | None) -> None:
        if times is None:
            self._always = answer
        else:
            self._answers.extend([answer] * times)

    def __call__(self, request: ApprovalRequest) -> Answer | None:
        self.questions.append(request)
        return self._answers.popleft() if self._answers else self._always
