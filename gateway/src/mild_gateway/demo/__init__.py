"""Three stand-in experts and a router for them: the gateway to try out, without a key or a model."""

from mild_gateway.demo.serving import demo_router, serve_demo

__all__ = ["demo_router", "serve_demo"]
