"""Clients for node: openai and the Vercel AI SDK."""


def test_openai(run_node, is_served):
    more = ["responses"] if is_served("/v1/responses") else []
    done = run_node("openai_node.mjs", "openai")
    assert done == ["plain", "streaming", "tools", "parse", "errors", *more]


def test_ai_sdk(run_node, is_served):
    more = ["responses"] if is_served("/v1/responses") else []
    assert run_node("ai_sdk.mjs", "ai") == ["chat", *more]
