"""Clients for node: openai and the Vercel AI SDK."""


def test_openai(run_node):
    done = run_node("openai_node.mjs", "openai")
    assert done == ["plain", "streaming", "tools", "parse", "errors", "responses"]


def test_ai_sdk(run_node):
    assert run_node("ai_sdk.mjs", "ai") == ["chat", "responses"]
