"""A page."""

from starlette.routing import Route

from hushrec.ui.site import Site


def routes(site: Site) -> list[Route]:
    """Its routes."""
    return []
