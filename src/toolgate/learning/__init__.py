"""Learning from past calls: `outcome_factors` turns outcomes into factors for the order of searches, `past_tasks` keeps
tasks and notes and finds similar ones, `recommendations` names tools for a task, `feedback` takes what users say,
`tool_reports` reports how tools did, `proposals` proposes limits of tools, `outbound` sends to a service."""
