"""The control port: read and change faults at run time. Never reachable through the engine's own port."""

import json

from tools.enginesim.engine import Engine
from tools.enginesim.faults import FaultBoard
from tools.enginesim.httpserver import Request


class Control:
    """``GET /faults``, ``PUT /faults`` with the fields to change, ``DELETE /faults``."""

    def __init__(self, board: FaultBoard, engine: Engine) -> None:
        self.board = board
        self.engine = engine

    def handle(self, request: Request) -> None:
        """Entry point."""
        answer = request.connection.respond_json
        if request.path != "/faults" or request.method not in ("GET", "PUT", "DELETE"):
            answer(404, {"error": "GET, PUT or DELETE /faults"})
            return
        try:
            if request.method == "PUT":
                self.board.change(json.loads(request.body or b"{}"))
            elif request.method == "DELETE":
                self.board.change(dict.fromkeys(self.board.as_json()))
        except (ValueError, AttributeError) as error:
            answer(400, {"error": str(error)})
            return
        answer(200, self.board.as_json())
        self.engine.apply_faults()
