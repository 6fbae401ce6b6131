"""Logs what the mesh notices of other routers."""

from __future__ import annotations

from enmasse.logs import log
from services.router.mesh.mesh_engine import MeshEvent


def log_notice(event: MeshEvent, router: str, text: str) -> None:
    """Log a notice of the mesh about another router."""
    logger = log.get()
    if event is MeshEvent.NEIGHBOUR_FOUND:
        logger.info("router.neighbour.found", router=router, text=text)
    elif event is MeshEvent.NEIGHBOUR_LOST:
        logger.warning("router.neighbour.lost", router=router, text=text)
    elif event is MeshEvent.NEIGHBOUR_LEFT:
        logger.info("router.neighbour.left", router=router, text=text)
    elif event is MeshEvent.ROUTER_RESTARTED:
        logger.info("router.neighbour.restarted", router=router, text=text)
    elif event is MeshEvent.DUPLICATE_ID:
        logger.error("router.neighbour.duplicate-id", router=router, text=text)
    elif event in (MeshEvent.MALFORMED, MeshEvent.NEWER_VERSION):
        logger.warning("router.neighbour.unreadable", router=router, text=text)
    else:
        logger.warning("router.neighbour.refused", router=router, text=text)
