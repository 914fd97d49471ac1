"""Messages and notes that agents leave for people, and for their own next turn.

canvas           blocks that a session shows
notifications    messages to the user, kept here and sent to the user's channels
channels         the channels: services that apprise knows, as the settings name them
behaviours       sentences that every prompt of a persona has from then on
"""
