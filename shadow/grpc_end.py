"""The end of a gRPC server that leaves nothing behind. Called by the xDS server and the recorder."""

import grpc.aio

# The poller is shared by all servers of a process. Without a user of its own it ends with the last server, wherever
# that is collected, and a collection that waits for a thread may wait without end.
grpc.aio.init_grpc_aio()  # type: ignore[attr-defined]  # grpc-stubs lacks it


async def end(server: grpc.aio.Server, grace_s: float) -> None:
    """Stop `server`, so that its finaliser has nothing left to do.

    The library's finaliser starts one more shutdown on the server's event loop, which may be closed by then; the
    error is raised in the middle of whatever the collector interrupted.
    """
    await server.stop(grace_s)
    if hasattr(server, "_server"):
        del server._server
