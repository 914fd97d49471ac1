"""`toolgate chat`: a conversation with an agent at the terminal, whose tools are governed like everybody's."""

from toolgate.cli.chat.command import chat

__all__ = ["chat"]
