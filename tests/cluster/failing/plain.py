"""A program without PyTorch that fails in a given way: plain.py --how HOW."""

import argparse
import ctypes
import os
import resource
import signal
import socket
import sys
import urllib.request


def raises():
    """Raise out of a call."""
    labels = {"cat": 0}
    return labels["dog"]


def module():
    """Import what is not installed."""
    import flash_attn

    print(flash_attn.__version__)


def library():
    """Load a library that is not there."""
    ctypes.CDLL("libcudnn.so.8")


def file():
    """Open a file that is not there."""
    open("/cluster/data/imagenet/train.txt")


def forbidden():
    """Write where only another user may."""
    open("/home/bob/results.csv", "w")


def memory():
    """Ask for more address space than it may have."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    bytearray(2 << 30)


def hog():
    """Use more memory than the job asked for."""
    print(len(bytearray(600 << 20)))


def files():
    """Open more files than it may."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    kept = []
    while True:
        kept.append(open("/dev/null"))


def full():
    """Write more than fits on the disk."""
    with open("/tmp/small/checkpoint.pt", "wb") as file:
        file.write(bytes(4 << 20))


def port():
    """Listen where another listens."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        first.listen()
        second.bind(first.getsockname())


def internet():
    """Reach for the internet from a node that has none."""
    urllib.request.urlopen("https://huggingface.co/gpt2/resolve/main/config.json", timeout=20)


def proxy():
    """Reach for it through a proxy that is not there."""
    os.environ["https_proxy"] = "http://ctl:3128"
    urllib.request.urlopen("https://huggingface.co/gpt2/resolve/main/config.json", timeout=20)


def segfault():
    """Read from a bad address."""
    ctypes.string_at(0)


def aborts():
    """Give up, as libraries in C do."""
    os.abort()


def illegal():
    """Be made for another processor."""
    os.kill(os.getpid(), signal.SIGILL)


def diverges():
    """Train with a far too large learning rate, and stop when the loss is NaN."""
    weight = 1.0
    for step in range(1000):
        loss = weight * weight
        print(f"step {step} loss {loss}")
        if not loss < float("inf"):
            print(f"Loss is {loss - loss}, stopping training")
            sys.exit(1)
        weight -= 1e30 * 2 * weight


HOWS = {
    function.__name__: function
    for function in (
        *(raises, module, library, file, forbidden, memory, hog, files, full, port),
        *(internet, proxy, segfault, aborts, illegal, diverges),
    )
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=HOWS, required=True)
    HOWS[parser.parse_args().how]()
