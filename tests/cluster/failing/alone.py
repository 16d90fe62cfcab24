"""One process with PyTorch that fails in a given way: alone.py --how HOW."""

import argparse

import torch


class Wide(torch.utils.data.Dataset):
    """Samples of 4 MiB, which do not fit into a small /dev/shm."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.ones(1 << 20) * index


def loader():
    """Let a worker hand a batch over through shared memory."""
    for batch in torch.utils.data.DataLoader(Wide(), batch_size=4, num_workers=1):
        print(batch.sum())


def cuda():
    """Use a GPU where there is none."""
    print(torch.ones(1, device="cuda"))


def address():
    """Listen twice at one port, as two jobs with one MASTER_PORT on a host do."""
    first = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.distributed.TCPStore("127.0.0.1", first.port, is_master=True, wait_for_workers=False)


HOWS = {function.__name__: function for function in (loader, cuda, address)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=HOWS, required=True)
    HOWS[parser.parse_args().how]()
