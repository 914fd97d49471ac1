"""`read_file`, `file_read`, `write_file`, `list_directory`, `create_directory`, `file_operations`: files of the folder that
a call works in.

The tools with one purpose are the first names of reading, writing, listing and making folders; `file_operations` does the
same by its operations, and is the only one that edits, deletes, and tells whether something is there. `file_content`,
`file_changes` and `file_deletion` do the work for all of them.
"""

from typing import Annotated, Literal

from pydantic import Field

from toolgate.errors import InvalidInput
from toolgate.model import Capability, ErrorCase, Example, Operation
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.tools import file_changes, file_content, file_deletion
from toolgate.tools.file_changes import Edited, FolderMade, Written
from toolgate.tools.file_content import Content, Existence, Listing
from toolgate.tools.file_deletion import Deleted

Text = Annotated[str, Field(json_schema_extra={"x-path": False})]

OUTSIDE = ErrorCase(
    "SECURITY_VIOLATION",
    when="The path leads out of the working directory, to a sensitive file, or to Toolgate's own data.",
    advice="Name a file below the working directory, by a path relative to it.",
)
RUNS_LATER = ErrorCase(
    "SECURITY_VIOLATION",
    when="The path is a link, or a place from which the host runs something (.git, .vscode, .husky …).",
    advice="Name the file itself. Places that are run are changed by a person.",
)
UNREADABLE = ErrorCase(
    "INVALID_INPUT",
    when="There is no such file (details: missing), it is a folder, too large, or no text in UTF-8.",
    advice="Look with list_directory; read what is no text with encoding base64.",
)
UNWRITABLE = ErrorCase(
    "INVALID_INPUT",
    when="A folder stands there, or the folder that it is in is missing and is not to be made.",
    advice="Name another path, or let missing folders be made.",
)
UNKEPT = ErrorCase(
    "PERMISSION_DENIED",
    when="What is there is too large to be backed up (setting limits.backup_bytes).",
    advice="Change it by hand, or have the limit raised.",
)
NOTES = {"path": "notes.txt"}


@tool(
    tier="read_only",
    category="filesystem",
    tags=["files"],
    capabilities=[Capability(action="read", description="Read file contents")],
    errors=[OUTSIDE, UNREADABLE],
    examples=[
        Example(name="Read a text file", arguments=NOTES),
        Example(name="Read any file", arguments={**NOTES, "encoding": "base64"}),
    ],
)
async def read_file(ctx: InvokeContext, path: str, encoding: Literal["utf8", "base64"] = "utf8") -> Content:
    """Read a file of the working directory.

    Args:
        path: File path to read, relative to the working directory.
        encoding: utf8 for text; base64 for anything else.
    """
    return await file_content.read_content(ctx, path, encoding)


@tool(
    tier="read_only",
    category="filesystem",
    tags=["executor", "files"],
    capabilities=[Capability(action="read", description="Read file contents")],
    errors=[OUTSIDE, UNREADABLE],
    examples=[Example(name="Read a text file", arguments=NOTES)],
    alias_of="read_file",
)
async def file_read(ctx: InvokeContext, path: str) -> Content:
    """Read file content: a text file of the working directory.

    Args:
        path: The file, relative to the working directory.
    """
    return await file_content.read_content(ctx, path)


@tool(
    tier="read_only",
    category="filesystem",
    tags=["files"],
    capabilities=[Capability(action="list", description="List what is in a folder")],
    errors=[OUTSIDE, ErrorCase("INVALID_INPUT", when="There is no such folder.", advice="List the folder that it is in.")],
    examples=[
        Example(name="List the working directory"),
        Example(name="Look at one file", arguments={**NOTES, "self": True}),
    ],
)
async def list_directory(ctx: InvokeContext, path: str = ".", self: bool = False) -> Listing:
    """List what is in a folder of the working directory: names, kinds, sizes and times.

    Args:
        path: The folder, relative to the working directory. Of a file, the file itself is listed.
        self: Whether of a folder, too, only the folder itself is listed.
    """
    return await file_content.list_folder(ctx, path, alone=self)


@tool(
    tier="write",
    category="filesystem",
    tags=["files"],
    capabilities=[Capability(action="write", description="Write content to file", requires_confirmation=True)],
    errors=[OUTSIDE, RUNS_LATER, UNWRITABLE, UNKEPT],
    examples=[
        Example(
            name="Write a file in a new folder",
            arguments={"path": "src/hello.txt", "content": "hello\n"},
            output={"success": True, "bytesWritten": 6},
        )
    ],
)
async def write_file(ctx: InvokeContext, path: str, content: str, createDirs: bool = True) -> Written:
    """Write a text file in the working directory, in place of what is there. `toolgate undo` puts that back.

    Args:
        path: The file, relative to the working directory.
        content: All that the file shall hold.
        createDirs: Whether folders that are missing are made.
    """
    return await file_changes.write(ctx, path, content, make=createDirs)


@tool(
    tier="write",
    category="filesystem",
    tags=["files"],
    capabilities=[Capability(action="create", description="Make a folder")],
    errors=[
        OUTSIDE,
        RUNS_LATER,
        ErrorCase(
            "INVALID_INPUT",
            when="A file stands there, or parents is false and one is missing.",
            advice="Name another path.",
        ),
    ],
    examples=[Example(name="Make a folder and those around it", arguments={"path": "src/new/folder"})],
)
async def create_directory(ctx: InvokeContext, path: str, parents: bool = True) -> FolderMade:
    """Make a folder in the working directory. One that is there already will do.

    Args:
        path: The folder, relative to the working directory.
        parents: Whether the folders that it is in are made too, if they are missing.
    """
    return await file_changes.make_directory(ctx, path, parents=parents)


@tool(
    tier="read_only",
    category="filesystem",
    tags=["files"],
    operations={
        "read": "read_only",
        "write": Operation(tier="write", requires_confirmation=True),
        "edit": Operation(tier="write", requires_confirmation=True),
        "list": "read_only",
        "delete": Operation(tier="write", destructive=True),
        "exists": "read_only",
    },
    errors=[
        OUTSIDE,
        RUNS_LATER,
        UNREADABLE,
        UNWRITABLE,
        ErrorCase(
            "INVALID_INPUT",
            when="An edit's pattern is not in the file, or more than once (details: matches).",
            advice="Give the text exactly as it stands there, with more around it, or set replaceAll to true.",
        ),
        UNKEPT,
    ],
    examples=[
        Example(name="Read a file", arguments={"operation": "read", **NOTES}),
        Example(
            name="See whether a file is there",
            arguments={"operation": "exists", **NOTES},
            output={"exists": True, "type": "file"},
        ),
        Example(
            name="Write a file",
            arguments={"operation": "write", "path": "src/greeting.txt", "content": "hello\n"},
            output={"success": True, "bytesWritten": 6},
        ),
    ],
)
async def file_operations(
    ctx: InvokeContext,
    operation: Literal["read", "write", "edit", "list", "delete", "exists"],
    path: str,
    content: Text | None = None,
    pattern: Text | None = None,
    replacement: Text | None = None,
    replaceAll: bool = False,
    backup: bool = True,
) -> Content | Written | Edited | Listing | Deleted | Existence:
    """Read, write, edit, list, and delete files of the working directory, or see whether one exists.

    Args:
        operation: What to do.
        path: File or directory path, relative to the working directory.
        content: For write: all that the file shall hold.
        pattern: For edit: the exact text to replace.
        replacement: For edit: the text to put in its place.
        replaceAll: For edit: replace every place, not just the only one.
        backup: For write and edit: keep what was there, for `toolgate undo`.
    """
    match operation:
        case "read":
            return await file_content.read_content(ctx, path)
        case "list":
            return await file_content.list_folder(ctx, path)
        case "exists":
            return await file_content.existence(ctx, path)
        case "delete":
            return await file_deletion.delete(ctx, path)
        case "write":
            return await file_changes.write(ctx, path, _given("content", content), make=True, backup=backup)
        case "edit":
            old, new = _given("pattern", pattern), _given("replacement", replacement)
            if not old:
                raise InvalidInput("The pattern is empty.", suggestion="Give the exact text to replace.")
            return await file_changes.edit(ctx, path, old, new, every=replaceAll, backup=backup)


def _given(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidInput(f"This operation needs the argument {name}.", suggestion=f"Give {name} as text.")
    return value
