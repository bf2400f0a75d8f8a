from mild.routers.linear import LinearRouter
__all__=["LinearRouter"]
