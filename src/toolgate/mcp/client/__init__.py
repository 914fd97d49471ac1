"""The engine for MCP servers that Toolgate calls: one supervised connection for each.

It knows nothing of tools, calls or policies: it starts servers, keeps them alive, asks them, and says what became of it.
`engine.Servers` is all that the rest of Toolgate sees; `port` has the words. Inside:

    one server's life      supervise, tries
    one connection         connection, agreeing, answers, attribute, listing, subscribing, streams
    programs               stdio, jsonlines; jailing, lending, finding, domains, proxy; plain, keeper; packages
    addresses              remote, remote_words, guarded_http, tls, events; the quick way: wire, posting, modern
    logins                 oauth, authorizing, tokens, login
    what strangers say     concealing (secrets), bounds (size), words; and filling, what they are given in secret
    the SDK                sdk, which loads it when it is first needed
"""
