"""Tiny files in the official formats, and a server on this machine that hands files out."""

import gzip
import pickle
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest


def python2_pickle(value):
    """Bytes that Python 2 wrote for such a value, protocol 2; arrays of uint8 as old NumPy did."""
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value):
    if isinstance(value, np.ndarray):
        dtype = (
            b"cnumpy\ndtype\n" + _python2(b"u1") + b"K\x00K\x01\x87R"
            b"(K\x03" + _python2(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
        )
        return (
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
            b"(K\x01(" + b"".join(_python2(size) for size in value.shape) + b"t"
            + dtype + b"\x89" + _python2(value.tobytes()) + b"tb"
        )  # fmt: skip
    if isinstance(value, bytes):
        if len(value) < 256:
            return b"U" + bytes([len(value)]) + value
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    assert isinstance(value, dict)
    return b"}(" + b"".join(_python2(part) for item in value.items() for part in item) + b"u"


def cifar_rows(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)


@pytest.fixture(params=["python 2", "protocol 2", "protocol 4"])
def dump(request):
    """Three ways in which these files were pickled."""
    if request.param == "python 2":
        return python2_pickle
    protocol = int(request.param[-1])
    return lambda value: pickle.dumps(value, protocol=protocol)


@pytest.fixture
def old_pickle():
    return python2_pickle


@pytest.fixture
def make_cifar10():
    def make(folder, dump=python2_pickle, n=3, **changed):
        """Six batches of n images each; ``changed`` replaces the content of a file."""
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, 7):
            name = f"data_batch_{number}" if number < 6 else "test_batch"
            content = {
                b"batch_label": name.encode(),
                b"labels": [(number + i) % 10 for i in range(n)],
                b"data": cifar_rows(n, seed=number),
                b"filenames": [b"image.png"] * n,
            }
            (folder / name).write_bytes(dump(changed.get(name, content)))
        names = [f"class {k}".encode() for k in range(10)]
        meta = {b"num_cases_per_batch": n, b"label_names": names, b"num_vis": 3072}
        (folder / "batches.meta").write_bytes(dump(changed.get("batches.meta", meta)))
        return folder

    return make


@pytest.fixture
def make_cifar100():
    def make(folder, dump=python2_pickle):
        folder.mkdir(parents=True, exist_ok=True)
        for seed, (name, labels) in enumerate({"train": [0, 99, 7], "test": [50, 3]}.items()):
            content = {
                b"fine_labels": labels,
                b"coarse_labels": [1] * len(labels),
                b"data": cifar_rows(len(labels), seed),
            }
            (folder / name).write_bytes(dump(content))
        names = [f"fine {k}".encode() for k in range(100)]
        meta = {b"fine_label_names": names, b"coarse_label_names": [b"coarse"] * 20}
        (folder / "meta").write_bytes(dump(meta))
        return folder

    return make


def idx_bytes(array):
    return (
        bytes([0, 0, 8, array.ndim])
        + b"".join(struct.pack(">I", size) for size in array.shape)
        + array.tobytes()
    )


@pytest.fixture
def idx():
    return idx_bytes


@pytest.fixture
def make_fashion():
    def make(folder, zipped=True, n_train=4, n_test=2):
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        arrays = {}
        for part, n in (("train", n_train), ("t10k", n_test)):
            images = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
            arrays[f"{part}-images-idx3-ubyte"] = images
            arrays[f"{part}-labels-idx1-ubyte"] = np.arange(n, dtype=np.uint8)
        for name, array in arrays.items():
            content = idx_bytes(array)
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
        return arrays

    return make


@pytest.fixture
def server(monkeypatch):
    """A server of files; what it does wrong can be chosen.

    files : content by name
    ranges : whether it can go on in the middle
    cuts : for each request to come, how many bytes are sent before the connection is cut
    asked : the Range header of each request, or None
    """
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = SimpleNamespace(files={}, ranges=True, cuts=[], asked=[], answer=None, length=True)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            state.asked.append(wanted)
            content = state.files.get(self.path.removeprefix("/data/"))
            if state.answer is not None:
                state.answer(self)
                return
            if content is None:
                self.send_error(404)
                return
            start = 0
            if wanted and state.ranges:
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
                self.send_response(206)
                last, size = len(content) - 1, len(content)
                self.send_header("Content-Range", f"bytes {start}-{last}/{size}")
            else:
                self.send_response(200)
            body = content[start:]
            if state.length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.cuts.pop(0)] if state.cuts else body)

        def log_message(self, *args):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{httpd.server_port}/data/"
    yield state
    httpd.shutdown()
    httpd.server_close()
    thread.join()
