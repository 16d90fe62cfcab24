"""A program as people have it: it knows nothing of orchestrator."""

import time

import torch

model = torch.nn.Linear(32, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for step in range(0, 30, 10):
        started = time.perf_counter()
        inputs, labels = torch.randn(64, 32), torch.randint(0, 10, (64,))
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        speed = 64 / (time.perf_counter() - started)
        print(f"epoch {epoch} step {step} loss {loss.item():.2f} {speed:.1f} samples/sec")
