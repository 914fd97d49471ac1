"""The MCP client: a supervised connection for each server that Toolgate calls.

It knows nothing of tools, calls or policies: it starts servers, keeps them running, sends requests and reports what came of
them. `servers.UpstreamServers` is all that the rest of Toolgate uses; `model` and `errors` hold its values. Inside:

    lifecycle              supervisor, backoff
    connection             connection, handshake, correlation, list_cache, subscriptions, request_meta
    local programs         stdio; launch, mounts, executables, packages; subreaper
    remote servers         http_transport, guarded_http, sse; the fast path: fast_http
    logins                 oauth/
    secrets, untrusted text  secret_refs, secret_masking, untrusted_text
    the SDK                sdk, which loads it when it is first needed
"""
