"""Train a small convolutional network on handwritten digits, on any device that PyTorch has.

    python train_digits.py                    # on the CPU
    python train_digits.py --device openreg   # the same numbers, on the device

The training part imports torch and nothing else: the device appears because its package is installed. scikit-learn is
used once, for its copy of the data: 1797 images of 8x8 pixels. A quarter of them is kept for testing.

Every line of output is a JSON object ("placement", "epoch" for each epoch, "result"), so that another program can
follow the training. `python -m torch_openreg demo` is that program: it runs this script on two devices and compares
them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable

import torch
from torch import nn

BATCH_SIZE = 64


def load_digits() -> dict[str, torch.Tensor]:
    """The data on the CPU: `train_x`, `test_x` (N, 1, 8, 8) in [0, 1] and `train_y`, `test_y` (N,).

    Both parts have the classes in the same proportions.
    """
    from sklearn import datasets, model_selection  # type: ignore[import-untyped]

    images, labels = datasets.load_digits(return_X_y=True)
    split = model_selection.train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=0)
    train_x, test_x = (torch.tensor(part, dtype=torch.float32).view(-1, 1, 8, 8) / 16 for part in split[:2])
    train_y, test_y = (torch.tensor(part) for part in split[2:])
    return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}


def build() -> nn.Module:
    """The network: two convolutions and two linear layers with about 151,000 parameters.

    The CPU's generator gives their initial values.
    """
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def evaluate(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The logits in evaluation mode, and the share of right answers. Waits for the device."""
    model.eval()
    with torch.no_grad():
        logits = model(x)
    model.train()
    return logits, (logits.argmax(1) == y).float().mean().item()


def devices_of(tensors: Iterable[torch.Tensor | None]) -> list[str]:
    """The devices of the tensors; `none` stands for a missing tensor, such as a gradient that does not exist."""
    return sorted({"none" if tensor is None else str(tensor.device) for tensor in tensors})


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="any device of torch (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training data (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights and of the order (default: 0)")
    parser.add_argument("--threads", type=int, help="threads that compute (default: torch's choice)")
    parser.add_argument("--data", metavar="FILE", help="take the data from here, not from scikit-learn")
    parser.add_argument(
        "--save", metavar="FILE", default="digits.pt", help="where the model goes (default: %(default)s)"
    )
    parser.add_argument("--lockstep", action="store_true", help="wait for a line on stdin before each epoch")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    data = torch.load(args.data, weights_only=True) if args.data else load_digits()
    device = torch.device(args.device)

    torch.manual_seed(args.seed)
    model = build().to(device)
    train_x, train_y, test_x, test_y = (data[key].to(device) for key in ("train_x", "train_y", "test_x", "test_y"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    criterion = nn.CrossEntropyLoss()
    # The order of the images has its own generator, on the CPU, so the order is the same on every device.
    order = torch.Generator().manual_seed(args.seed)

    for epoch in range(1, args.epochs + 1):
        if args.lockstep:
            sys.stdin.readline()
        start = time.perf_counter()
        losses = []
        # Whole batches only: the last three images would make a noisy step.
        for index in torch.randperm(len(train_x), generator=order).to(device).split(BATCH_SIZE)[:-1]:
            optimizer.zero_grad()
            loss = criterion(model(train_x[index]), train_y[index])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        # tolist() waits for the device, so `seconds` has the time of all work of the epoch.
        values = torch.stack(losses).tolist()
        seconds = time.perf_counter() - start

        if epoch == 1:
            parameters = list(model.parameters())
            emit(
                "placement",
                parameters=devices_of(parameters),
                gradients=devices_of(parameter.grad for parameter in parameters),
                optimizer=devices_of(value for state in optimizer.state.values() for value in state.values()),
                images=devices_of([train_x, test_x]),
                loss=devices_of(losses),
                parameter_count=sum(parameter.numel() for parameter in parameters),
                threads=torch.get_num_threads(),
            )
        emit("epoch", epoch=epoch, losses=values, seconds=seconds, accuracy=evaluate(model, test_x, test_y)[1])

    logits, accuracy = evaluate(model, test_x, test_y)
    torch.save(model.state_dict(), args.save)
    reloaded = build().to(device)
    reloaded.load_state_dict(torch.load(args.save, map_location=device, weights_only=True))
    same = torch.equal(evaluate(reloaded, test_x, test_y)[0], logits)
    emit("result", accuracy=accuracy, test_images=len(test_y), saved=args.save, reloaded_equal=same)


if __name__ == "__main__":
    main()
