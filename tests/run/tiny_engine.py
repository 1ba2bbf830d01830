"""A program that serves the OpenAI API on a port: starts at once, answers 42, and does what a test wants of it.

`tiny_engine.py PORT [FOLDER]`: while FOLDER has a file `hold` it answers nothing, with a file `slow` a tenth of a
second later; with a file `crash` it ends when it is asked. It writes the GPUs that it was given into FOLDER/gpus.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("/nonexistent")


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._say({"data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if (FOLDER / "crash").exists():
            print("illegal memory access", flush=True)
            os._exit(3)
        while (FOLDER / "hold").exists():
            time.sleep(0.01)
        if (FOLDER / "slow").exists():
            time.sleep(0.1)
        self._say({"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}})

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _say(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    if FOLDER.is_dir():
        with (FOLDER / "gpus").open("a") as told:
            told.write(os.environ.get("CUDA_VISIBLE_DEVICES", "none") + "\n")
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
