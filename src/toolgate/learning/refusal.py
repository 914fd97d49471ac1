"""The refusal of feedback and of answers to suggestions."""

from toolgate.errors import ToolgateError


class FeedbackRefused(ToolgateError):
    """There is no such call or suggestion, or it was answered already."""
