"""A real local HTTP server whose answers are set by the test."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        self.server.answers[self.path](self)

    def log_message(self, *args):
        pass


class FileServer(ThreadingHTTPServer):
    """answers   functions that answer a request, by path
    asked        the requested paths
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.asked = {}, []

    def handle_error(self, request, address):
        pass  # clients that hang up are what is tested here

    def serve(self, path, answer):
        """Set the answer for `path`; returns its address."""
        self.answers[path] = answer
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


@contextmanager
def serving():
    server = FileServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def whole(content):
    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def status(code):
    return lambda handler: handler.send_error(code)


def in_turn(*answers):
    """One answer per request in order, then the last one for all further requests."""
    left = list(answers)
    return lambda handler: (left.pop(0) if len(left) > 1 else left[0])(handler)
