"""Clients for node: openai and the Vercel AI SDK."""


def test_openai(run_node, gateway):
    done = run_node("openai_node.mjs", "openai")
    assert done[:5] == ["plain", "streaming", "tools", "parse", "errors"]


def test_ai_sdk(run_node, gateway):
    assert run_node("ai_sdk.mjs", "ai")[0] == "chat"
