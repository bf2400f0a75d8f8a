"""Translation between the APIs of clients and of experts, with chat completions in the middle.

A request in any shape becomes a chat completion request; for an expert that speaks Anthropic's API, that
becomes a Messages request. Answers and events go the same way back. Where client and expert speak the same
API, nothing is translated.

A field that is null, false, 0 or empty counts as not given. Of the others each is translated, ignored (the
answer is valid without it) or refused (it would not be), by ``FIELDS``. Unknown fields are refused.
"""
