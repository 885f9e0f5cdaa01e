import features
import numpy as np
import pytest
import torch


def test_the_default_device_is_the_accelerator(device: torch.device) -> None:
    assert features.default_device().type == device.type


def test_positions_are_added(device: torch.device) -> None:
    assert features.add_positions(torch.ones(2, 3, device=device)).tolist() == [[1.0, 2.0, 3.0]] * 2


def test_labels_become_vectors(device: torch.device) -> None:
    vectors = features.one_hot(torch.tensor([2, 0], device=device), 3)
    assert vectors.device == device and vectors.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def test_a_histogram_counts_every_value(device: torch.device) -> None:
    assert features.histogram(torch.arange(8.0, device=device)).tolist() == [2, 2, 2, 2]


def test_what_is_downloaded_has_arrived(device: torch.device) -> None:
    for value in range(20):
        x = torch.full((1 << 16,), float(value), device=device)
        assert np.array_equal(features.download(x), np.full(1 << 16, float(value), np.float32))


def test_a_batch_that_does_not_fit_becomes_smaller(device: torch.device) -> None:
    if device.type == "cpu":
        pytest.skip("the CPU does not raise torch.OutOfMemoryError")
    item = torch.accelerator.get_memory_info(device)[1] // 3

    def run(batch: torch.Tensor) -> int:
        torch.empty(len(batch) * item, dtype=torch.uint8, device=device)
        return len(batch)

    assert features.in_largest_batch(run, torch.zeros(8, device=device)) == 2
