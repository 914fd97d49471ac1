"""The messages by which people are told of calls that wait for them. They have no arguments unless the settings say so, and
nothing in them approves anything: whoever answers does so signed in, where the link leads."""

from typing import Any, NamedTuple

import orjson

from toolgate.gates.approval.request import ApprovalRequest, plain, visible

MAX_ARGUMENT_CHARS = 2_000


class ApprovalMessage(NamedTuple):
    """A message to people, and the same for programs."""

    title: str
    text: str
    fields: dict[str, Any]


def about_one(asked: ApprovalRequest, public_url: str | None, *, arguments: bool) -> ApprovalMessage:
    """The message about a call that waits. `arguments`: those of `asked` are told too; they must be as records have them."""
    link = None if public_url is None else f"{public_url}/approvals/{asked.id}"
    tier = f"{asked.tier}, destructive" if asked.destructive else asked.tier
    who = "/".join(part for part in (asked.actor.tenant, asked.actor.persona, asked.actor.user) if part)
    lines = [
        f"Tool: {visible(asked.tool)} {visible(asked.tool_version)}",
        f"Tier: {tier}",
        f"Asked by: {plain(who)}",
        *([] if asked.outer_tool is None else [f"Inside: {visible(asked.outer_tool)}, which waits for the answer"]),
        f"Answer until: {asked.expires_at:%Y-%m-%d %H:%M %Z}",
        f"Approval: {asked.id}",
        *(_argument_lines(asked) if arguments else ()),
        "",
        f"Open it: {link}" if link else f"Answer it where Toolgate runs: toolgate approvals show {asked.id}",
    ]
    fields = {
        "type": "approval.waiting",
        "approval": asked.id,
        "tool": asked.tool,
        "tool_version": asked.tool_version,
        "tier": asked.tier,
        "destructive": asked.destructive,
        "tenant": asked.actor.tenant,
        "persona": asked.actor.persona,
        "user": asked.actor.user,
        "outer_tool": asked.outer_tool,
        "expires_at": asked.expires_at.isoformat(timespec="seconds"),
        "url": link,
        **({"arguments": asked.arguments} if arguments else {}),
    }
    return ApprovalMessage(f"{visible(asked.tool)} waits for approval", "\n".join(lines), fields)


def about_many(tenant: str, count: str, newest: ApprovalRequest, public_url: str | None) -> ApprovalMessage:
    """The message about calls of a tenant of which people were not told one by one, for there were too many. `count`: how
    many wait, in digits or as "more than 500"."""
    link = None if public_url is None else f"{public_url}/approvals"
    where = f"Open them: {link}" if link else "Answer them where Toolgate runs: toolgate approvals list"
    text = f"Calls of tenant {plain(tenant)} that wait: {count}\nThe newest: {visible(newest.tool)} ({newest.id})\n\n{where}"
    fields = {
        "type": "approval.many_waiting",
        "tenant": tenant,
        "count": count,
        "newest": newest.id,
        "url": link,
    }
    return ApprovalMessage(f"{count} calls wait for approval", text, fields)


def _argument_lines(asked: ApprovalRequest) -> list[str]:
    text = orjson.dumps(asked.arguments, option=orjson.OPT_INDENT_2).decode()
    shown = [f"| {plain(line)}" for line in text[:MAX_ARGUMENT_CHARS].split("\n")]
    left_out = [f"({len(text) - MAX_ARGUMENT_CHARS:,} characters more)"] if len(text) > MAX_ARGUMENT_CHARS else []
    return ["Arguments (secrets masked):", *shown, *left_out]
