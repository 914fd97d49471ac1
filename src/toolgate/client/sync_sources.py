"""The same as `sync_sources.py`, for programs without an event loop: written from it by `make reference`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from toolgate.client.connection import body_of, path_of, query_of
from toolgate.client.sync_facets import ClientFacet
from toolgate.serve.http.learning import (
    FeedbackList,
    FeedbackView,
    Forgotten,
    LearningReport,
    RecalledTasks,
    RememberedNote,
    SuggestionList,
    SuggestionView,
)
from toolgate.serve.http.openapi_documents import OpenApiDocumentDetail, OpenApiDocumentView
from toolgate.serve.http.pages import Page
from toolgate.serve.http.teams import ReceivedView, TeamsView


class TeamsClient(ClientFacet):
    """The tools of the organisation. For operators."""

    def get(self) -> TeamsView:
        """Gives the organisation, its tools, what of them waits, and each difference to what was accepted."""
        return self._connection.send("GET", "/v1/teams", TeamsView)

    def sync(self) -> ReceivedView:
        """Gets the newest bundle from where the settings say."""
        return self._connection.send("POST", "/v1/teams/sync", ReceivedView)

    def accept(self, hashes: list[str]) -> TeamsView:
        """Accepts tools as they were shown, by their fingerprints; none, if one has changed since."""
        return self._connection.send("POST", "/v1/teams/accept", TeamsView, body=body_of(hashes=hashes))

    def reject(self, hashes: list[str]) -> TeamsView:
        """Rejects tools as they were shown, by their fingerprints."""
        return self._connection.send("POST", "/v1/teams/reject", TeamsView, body=body_of(hashes=hashes))

    def remove(self) -> None:
        """Takes all tools of the organisation out of use, and forgets what was accepted."""
        self._connection.send("DELETE", "/v1/teams", type(None))


class LearningClient(ClientFacet):
    """How tools did, and what users say of them."""

    def show(self, task: str | None = None, *, days: int = 30, tool: str | None = None) -> LearningReport:
        """Gives how each tool did, and for a task the tools that did well with similar ones."""
        query = query_of(task=task, days=days, tool=tool)
        return self._connection.send("GET", "/v1/learning", LearningReport, query=query)

    def feedback(
        self,
        tool_name: str,
        success: bool,
        *,
        call_id: str | None = None,
        score: float | None = None,
        comment: str | None = None,
        task: str | None = None,
    ) -> FeedbackView:
        """Says whether a tool did what it was called for."""
        body = body_of(tool_name=tool_name, success=success, call_id=call_id, score=score, comment=comment, task=task)
        return self._connection.send("POST", "/v1/feedback", FeedbackView, body=body)

    def recall(self, query: str, limit: int = 10) -> RecalledTasks:
        """Gives past tasks and notes like a query, with the tools that worked."""
        return self._connection.send("POST", "/v1/recall", RecalledTasks, body=body_of(query=query, limit=limit))

    def remember(self, text: str, tags: Sequence[str] = ()) -> RememberedNote:
        """Keeps a note for later recall."""
        return self._connection.send("POST", "/v1/remember", RememberedNote, body=body_of(text=text, tags=list(tags)))

    def said(self, *, user: str | None = None, tool: str | None = None, limit: int = 50) -> list[FeedbackView]:
        """Gives the latest feedback, the newest first: one's own, or with the permission read of one user, or of all."""
        query = query_of(user=user, tool=tool, limit=limit)
        return (self._connection.send("GET", "/v1/feedback", FeedbackList, query=query)).items

    def forget(self, *, user: str | None = None, before: datetime | None = None) -> int:
        """Deletes feedback, past tasks and notes of the tenant, or of one of its users; gives how much. For admins."""
        query = query_of(user=user, before=before)
        return (self._connection.send("DELETE", "/v1/learning", Forgotten, query=query)).count

    def suggestions(self) -> list[SuggestionView]:
        """Gives limits that tools should have by what was seen of them, and those that were answered. For operators."""
        return (self._connection.send("GET", "/v1/learning/suggestions", SuggestionList)).items

    def accept(self, id: str) -> SuggestionView:
        """Has a suggestion hold from now on. For operators."""
        return self._answer(id, "accept")

    def reject(self, id: str) -> SuggestionView:
        """Has a suggestion not made again; one that was accepted holds no more. For operators."""
        return self._answer(id, "reject")

    def _answer(self, id: str, verdict: str) -> SuggestionView:
        path = path_of("/v1/learning/suggestions/{}", id)
        return self._connection.send("POST", path, SuggestionView, body=body_of(verdict=verdict))


class OpenApiClient(ClientFacet):
    """The OpenAPI documents whose operations are tools. For operators."""

    def get(self, name: str) -> OpenApiDocumentDetail:
        """Gives a document with the operations that wait to be accepted, each with its difference."""
        return self._connection.send("GET", path_of("/v1/openapi/{}", name), OpenApiDocumentDetail)

    def add(
        self,
        name: str,
        url: str | None = None,
        *,
        document: Mapping[str, Any] | None = None,
        server: str | None = None,
        operations: Sequence[str] = (),
        secrets: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> OpenApiDocumentDetail:
        """Reads a document from a URL, or as it is given here. No operation can be called before it was accepted."""
        body = body_of(
            name=name, url=url, document=document, server=server, operations=list(operations), secrets=secrets,
            replace=replace,
        )  # fmt: skip
        return self._connection.send("POST", "/v1/openapi", OpenApiDocumentDetail, body=body)

    def refresh(self, name: str) -> OpenApiDocumentDetail:
        """Reads a document again, and compares its operations with those that were accepted."""
        return self._connection.send("POST", path_of("/v1/openapi/{}/refresh", name), OpenApiDocumentDetail)

    def accept(self, name: str, hashes: Sequence[str]) -> OpenApiDocumentDetail:
        """Accepts operations as they were shown, by their fingerprints; none, if one has changed since."""
        path = path_of("/v1/openapi/{}/accept", name)
        return self._connection.send("POST", path, OpenApiDocumentDetail, body=body_of(hashes=list(hashes)))

    def remove(self, name: str) -> None:
        """Removes a document with its tools and what was accepted of them."""
        self._connection.send("DELETE", path_of("/v1/openapi/{}", name), type(None))

    def list(self) -> list[OpenApiDocumentView]:
        """Gives the documents."""
        return (self._connection.send("GET", "/v1/openapi", Page[OpenApiDocumentView])).items
