"""A training loop as in the guide for Olivia (source S2). Frozen: do not improve it.

`script/bench trainer` compares the trainer with it. As in the guide: PIL images, augmented on the
CPU by torchvision one by one; DataLoader workers started in each epoch; NCHW; autocast with
GradScaler on a GPU; no compilation; the time of an epoch includes starting the workers. Model and
data are those of the trainer, so that only the loop differs.
"""

import argparse
import time
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from trainers import data as trainers_data
from trainers import models


class Images(Dataset):
    """Returns PIL images, as torchvision's CIFAR does."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, transform) -> None:
        self.images = images.permute(0, 2, 3, 1).numpy()
        self.labels = labels.tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", default="synthetic")
    parser.add_argument("--data-dir", type=Path, default=Path("datasets"))
    parser.add_argument("--synthetic-samples", type=int, default=10_000)
    parser.add_argument("--synthetic-classes", type=int, default=100)
    parser.add_argument("--model", required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--base-lr", type=float, required=True)
    parser.add_argument("--num-workers", type=int, default=8)
    parser.set_defaults(synthetic_shape=(3, 32, 32), no_augmentation=True)
    arguments = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = trainers_data.load(arguments)
    normalise = transforms.Normalize(
        (data.train.mean / 255).flatten().tolist(), (data.train.std / 255).flatten().tolist()
    )
    for_training = transforms.Compose(
        [
            transforms.RandomHorizontalFlip(),
            transforms.RandomCrop(32, padding=4),
            transforms.ToTensor(),
            normalise,
        ]
    )
    # The guide also augments validation images; not here, so that losses are comparable.
    for_testing = transforms.Compose([transforms.ToTensor(), normalise])
    train_loader = DataLoader(
        Images(data.train.samples, data.train.labels, for_training),
        batch_size=arguments.batch_size,
        shuffle=True,
        num_workers=arguments.num_workers,
        pin_memory=device.type == "cuda",
        drop_last=True,
    )
    test_loader = DataLoader(
        Images(data.eval.samples, data.eval.labels, for_testing),
        batch_size=arguments.batch_size,
        num_workers=arguments.num_workers,
        pin_memory=device.type == "cuda",
    )

    torch.manual_seed(0)
    model = models.build(arguments.model, data.sample_shape, data.num_classes).to(device)
    loss_function = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=arguments.base_lr, momentum=0.9, weight_decay=5e-4
    )
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    for epoch in range(arguments.epochs):
        model.train()
        began = time.time()
        for images, labels in train_loader:
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            optimizer.zero_grad()
            with torch.amp.autocast(device.type, enabled=device.type == "cuda"):
                loss = loss_function(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        if device.type == "cuda":
            # In the guide an NCCL barrier waits for the device.
            torch.cuda.synchronize()
        seconds = time.time() - began

        model.eval()
        loss_sum, num_right = 0.0, 0
        with torch.no_grad():
            for images, labels in test_loader:
                images, labels = images.to(device), labels.to(device)
                logits = model(images)
                loss_sum += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
                num_right += (logits.argmax(dim=1) == labels).sum().item()
        count = len(data.eval)
        rate = len(train_loader) * arguments.batch_size / seconds
        print(f"Epoch {epoch + 1}/{arguments.epochs} completed in {seconds:.3f} seconds")
        print(
            f"Validation Loss: {loss_sum / count:.4f}, Validation Accuracy: {num_right / count:.4f}"
        )
        print(f"Epoch Throughput: {rate:.3f} images/second", flush=True)


if __name__ == "__main__":
    main()
