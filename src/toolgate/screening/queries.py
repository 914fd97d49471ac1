"""SQL that only asks: one statement of PostgreSQL that begins like a question and calls nothing that acts.

It is read as PostgreSQL's own scanner reads it, word by word. What has been used to make two readers see different things
(comments, dollar quotes, escapes, Unicode spellings) is refused outright, so that there is only one way to read the rest.
A check of words is the first of three guards: the session is read-only (`mcp/presets.yaml`), which a statement that passed
could undo; and the database's user should have no right to change anything, which none can.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from toolgate.errors import Denied

MAX_QUERY_CHARS = 100_000

ASKING = frozenset(("select", "with", "values", "table"))
CHANGING = frozenset(("insert", "update", "delete", "merge"))
"""They can stand inside of a question: `WITH gone AS (DELETE …) SELECT …`."""

HARMLESS = re.compile(
    r"pg_(?:size_pretty|size_bytes|(?:total_)?relation_size|table_size|indexes_size|database_size|column_size|typeof"
    r"|get_(?:viewdef|functiondef|function_[a-z_]+|indexdef|constraintdef|triggerdef|ruledef|expr|serial_sequence|partkeydef"
    r"|partition_constraintdef|statisticsobjdef[a-z_]*|userbyid|keywords|object_address|publication_tables"
    r"|replica_identity_index|catalog_foreign_keys|wait_events)|[a-z_]+_is_visible|encoding_to_char|char_to_encoding|is_in_recovery|postmaster_start_time|backend_pid"
    r"|collation_for|describe_object|identify_object|index_column_has_property|options_to_table|conf_load_time)"
)
"""Of the functions that begin with pg_, those that tell something about tables. All others are refused."""
ACTING = re.compile(
    r"lo_.*|lo(?:read|write)|dblink.*|postgres_fdw_.*|set_config|current_setting|setseed|set_limit|nextval|setval"
    r"|.*_to_xml(?:schema|_and_xmlschema)?|ts_stat|ts_rewrite|crosstab.*|connectby|txid_.*|currtid.*|binary_upgrade_.*"
    r"|brin_.*|gin_clean_.*|http(?:_.*)?|cron_.*|file_.*|xpath_table"
)
"""Others that write, read files, reach other machines, change the session, run a text as SQL, or read its settings, in which
keys are kept (`app.settings.jwt_secret`)."""
ACTING_ON_ONE = re.compile(
    r"nextval|lo_(?:close|creat|create|get|import|tell|tell64|unlink)|ts_stat|dblink\w*|crosstab\w*|postgres_fdw_\w+"
    r"|http(?:_(?:get|post|put|patch|delete|head))?|current_setting|setseed|set_limit|binary_upgrade_\w+|brin_summarize_new_values"
    r"|gin_clean_pending_list"
)
"""Those of them that take one argument: `x.f` is `f(x)` to PostgreSQL, whatever x is. Here the names are exact, since many a
column is called `file_name`."""
_TABLES = """
catalog aggregate am amop amproc attrdef attribute auth_members available_extension_versions available_extensions cast class
collation constraint conversion cursors database default_acl depend description enum event_trigger extension
foreign_data_wrapper foreign_server foreign_table group index indexes inherits init_privs language largeobject_metadata locks
matviews namespace opclass operator opfamily parameter_acl partitioned_table policies policy prepared_statements
prepared_xacts proc publication publication_namespace publication_rel publication_tables range replication_origin
replication_origin_status replication_slots rewrite rules seclabel seclabels sequence sequences settings shdepend
shdescription shseclabel stat_activity stat_all_indexes stat_all_tables stat_archiver stat_bgwriter stat_checkpointer
stat_database stat_database_conflicts stat_io stat_progress_analyze stat_progress_basebackup stat_progress_cluster
stat_progress_copy stat_progress_create_index stat_progress_vacuum stat_recovery_prefetch stat_replication
stat_replication_slots stat_slru stat_statements stat_statements_info stat_subscription stat_subscription_stats
stat_sys_indexes stat_sys_tables stat_user_functions stat_user_indexes stat_user_tables stat_wal stat_wal_receiver
stat_xact_all_tables stat_xact_sys_tables stat_xact_user_functions stat_xact_user_tables statio_all_indexes
statio_all_sequences statio_all_tables statio_sys_indexes statio_sys_sequences statio_sys_tables statio_user_indexes
statio_user_sequences statio_user_tables statistic statistic_ext statistic_ext_data stats stats_ext stats_ext_exprs
subscription_rel tables tablespace timezone_abbrevs timezone_names transform trigger ts_config ts_config_map ts_dict
ts_parser ts_template type views wait_events lsn snapshot
"""
TABLES = frozenset(f"pg_{name}" for name in _TABLES.split())
"""Names that begin with pg_ and are no function: tables and views of the system, its schema, two types."""
PRIVATE = frozenset(
    (
        "pg_authid", "pg_shadow", "pg_user_mapping", "pg_user_mappings", "pg_largeobject", "pg_hba_file_rules",
        "pg_ident_file_mappings", "pg_file_settings", "pg_subscription", "pg_stat_ssl", "pg_stat_gssapi",
        "user_mapping_options", "_pg_user_mappings", "decrypted_secrets", "pg_db_role_setting", "pg_roles", "pg_user",
    )
)  # fmt: skip
"""Tables of the system that hold passwords, settings of databases and roles (`ALTER ROLE … SET pgrst.jwt_secret`), or what
the machine is made of."""
PRIVATE_SCHEMAS = frozenset(("vault", "pgsodium"))
"""Schemas of extensions that keep secrets and keys."""
CALLABLE_SCHEMAS = frozenset(("pg_catalog", "information_schema", "public", "extensions"))
"""Schemas whose functions may be called by their full name, if nothing else is said against them. Extensions that act
(cron.schedule, net.http_post, graphql.resolve, pgmq.send …) have their own."""

SPACE = re.compile(r"[ \t\n\r\f\v]+")
WORD = re.compile(r"[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*")
NUMBER = re.compile(r"[0-9]+|\.[0-9]+")
PARAMETER = re.compile(r"\$[0-9]{1,5}(?![A-Za-z0-9_$\u0080-\U0010ffff])")
"""A parameter, `$1`: a tag of a dollar quote never begins with a digit."""
TEXT = re.compile(r"'(?:[^']|'')*'")
QUOTED = re.compile(r'"(?:[^"]|"")+"')
UNICODE = re.compile(r"[uU]&['\"]")


class Token(NamedTuple):
    kind: Literal["word", "quoted", "text", "number", "sign"]
    value: str
    """Words and names in small letters."""


OPEN = Token("sign", "(")
EXPLAINING = frozenset(("analyze", "analyse", "verbose"))
LOCKING = frozenset(Token("word", word) for word in ("update", "share", "no", "key"))
"""Words that follow FOR where rows are locked."""


def check_query(sql: str) -> None:
    """Raises Denied (SECURITY_VIOLATION) if it does anything but ask."""
    if not isinstance(sql, str) or not sql.strip():
        raise _refused("it is empty")
    if len(sql) > MAX_QUERY_CHARS:
        raise _refused(f"it is longer than {MAX_QUERY_CHARS} characters")
    tokens = list(scan(sql))
    if tokens and tokens[-1] == Token("sign", ";"):
        tokens.pop()
    if Token("sign", ";") in tokens:
        raise _refused("it is more than one statement")
    _check_begin(tokens)
    for place, token in enumerate(tokens):
        before, after = _at(tokens, place - 1), _at(tokens, place + 1)
        _check_word(token, before, after)
        _check_name(token, before, after)
        _check_schema(token, before, after, _at(tokens, place - 2))


# -- how PostgreSQL reads it


def scan(sql: str) -> Iterator[Token]:
    """Its words and signs; raises Denied where it could be read in two ways."""
    place = 0
    while place < len(sql):
        refusal = _doubtful(sql, place)
        if refusal is not None:
            raise _refused(refusal)
        if (space := SPACE.match(sql, place)) is not None:
            place = space.end()
            continue
        token, place = _token(sql, place)
        yield token


def _token(sql: str, place: int) -> tuple[Token, int]:
    if (text := TEXT.match(sql, place)) is not None:
        if "\\'" in text[0]:
            raise _refused("a backslash stands before a quote")
        return Token("text", text[0]), text.end()
    if (parameter := PARAMETER.match(sql, place)) is not None:
        return Token("number", parameter[0]), parameter.end()
    if (quoted := QUOTED.match(sql, place)) is not None:
        return Token("quoted", quoted[0][1:-1].replace('""', '"').lower()), quoted.end()
    if (number := NUMBER.match(sql, place)) is not None:
        return Token("number", number[0]), number.end()
    if (word := WORD.match(sql, place)) is not None:
        if word[0].lower() == "e" and sql[word.end() : word.end() + 1] == "'":
            raise _refused("it has a string with escapes (E'…')")
        return Token("word", word[0].lower()), word.end()
    if sql[place] in "'\"":
        raise _refused("a quote is not closed")
    return Token("sign", sql[place]), place + 1


def _doubtful(sql: str, place: int) -> str | None:
    if sql.startswith(("--", "/*", "*/"), place):
        return "it has a comment"
    if sql[place] == "$" and PARAMETER.match(sql, place) is None:
        return "it has a dollar sign outside of a string"
    if sql[place] in "\\\0":
        return "it has a backslash outside of a string"
    if UNICODE.match(sql, place):
        return "it has a string or name in Unicode escapes (U&…)"
    return None


# -- what it may do


def _check_begin(tokens: Sequence[Token]) -> None:
    if tokens and tokens[0] == Token("word", "show"):
        if not 2 <= len(tokens) <= 4 or any(token.kind not in ("word", "quoted") and token.value != "." for token in tokens):
            raise _refused("SHOW takes the name of a setting")
        return
    place = _explained(tokens) if tokens and tokens[0] == Token("word", "explain") else 0
    while _at(tokens, place) == OPEN:
        place += 1
    first = _at(tokens, place)
    if first is None or first.kind != "word" or first.value not in ASKING:
        raise _refused("it does not begin with SELECT, WITH, VALUES, TABLE, SHOW or EXPLAIN")


def _explained(tokens: Sequence[Token]) -> int:
    """The place of the statement that EXPLAIN explains; with ANALYZE it is run."""
    place, inner = 1, _at(tokens, 2)
    if _at(tokens, 1) == OPEN:
        if inner is not None and inner.kind == "word" and inner.value not in ASKING:
            close = Token("sign", ")")
            return tokens.index(close) + 1 if close in tokens else len(tokens)
        return place
    while (token := _at(tokens, place)) is not None and token.kind == "word" and token.value in EXPLAINING:
        place += 1
    return place


def _check_word(token: Token, before: Token | None, after: Token | None) -> None:
    if token.kind != "word":
        return
    if token.value == "into":
        raise _refused("it has INTO: it would make a table")
    if token.value == "for" and after in LOCKING:
        raise _refused("it would lock what it reads (FOR UPDATE)")
    if token.value in CHANGING and not _is_column(before, after):
        raise _refused(f"it has {token.value.upper()}; if that is the name of a column, put it in double quotes")


def _is_column(before: Token | None, after: Token | None) -> bool:
    """True where a word that changes something can only be a name: behind a dot, or between signs and followed by one."""
    if before == Token("sign", "."):
        return True
    return (after is None or after.kind == "sign") and before not in (Token("sign", "("), Token("sign", ")"))


def _check_name(token: Token, before: Token | None, after: Token | None) -> None:
    """A function is called by `f(x)` and by `x.f`, so a name counts wherever it stands."""
    if token.kind not in ("word", "quoted"):
        return
    name = token.value
    if name in PRIVATE:
        raise _refused(f"it reads {name}, which is not for queries")
    called = after == OPEN
    systems = name.startswith("pg_") and not HARMLESS.fullmatch(name) and (called or name not in TABLES)
    acting = ACTING if called else ACTING_ON_ONE if before == Token("sign", ".") else None
    if systems or (acting is not None and acting.fullmatch(name)):
        raise _refused(f"it names {name}, which does more than ask")


def _check_schema(token: Token, before: Token | None, after: Token | None, schema: Token | None) -> None:
    if token.kind not in ("word", "quoted"):
        return
    dot = Token("sign", ".")
    if after == dot and token.value in PRIVATE_SCHEMAS:
        raise _refused(f"it reads the schema {token.value}, which is not for queries")
    if before == dot and after == OPEN and (schema is None or schema.value not in CALLABLE_SCHEMAS):
        raise _refused(f"it calls {token.value} of a schema whose functions may act")


def _at(tokens: Sequence[Token], place: int) -> Token | None:
    return tokens[place] if 0 <= place < len(tokens) else None


def _refused(why: str) -> Denied:
    return Denied(
        "SECURITY_VIOLATION",
        f"The query is refused: {why}.",
        suggestion="Ask with one SELECT, without comments.",
        reason=f"the query is refused: {why}",
    )
