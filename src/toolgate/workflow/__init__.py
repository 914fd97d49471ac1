"""Workflows of an n8n server as tools: how they are declared, started, waited for, and how their end is reported."""
