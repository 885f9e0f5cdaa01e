"""The third step: streams, events, memory that several streams use, and random numbers. Skipped in the other steps."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch_abacus
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.skipif(not hasattr(torch.abacus, "get_rng_state"), reason="no third step")


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    torch.accelerator.empty_cache()
    yield


@contextlib.contextmanager
def held(stream: torch.Stream) -> Iterator[None]:
    """Within the block, the stream begins no work."""
    torch_abacus._C.hold(stream.stream_id, True)
    try:
        yield
    finally:
        torch_abacus._C.hold(stream.stream_id, False)


# ---- Streams and events


def test_a_call_returns_before_the_device_has_done_the_work() -> None:
    stream = torch.accelerator.current_stream()
    x = torch.ones(4, device="abacus")
    with held(stream):
        y = x + x
        assert not stream.query()
    stream.synchronize()
    assert stream.query() and y.cpu().tolist() == [2] * 4


def test_a_stream_waits_for_an_event_and_the_host_does_too() -> None:
    first, second = torch.Stream("abacus"), torch.Stream("abacus")
    assert first != second and first.device == torch.device("abacus", 0)
    x = torch.ones(4, device="abacus")
    torch.accelerator.synchronize()
    with held(first):
        with first:
            assert torch.accelerator.current_stream() == first
            y = x + x
            event = first.record_event()
        with second:
            second.wait_event(event)
            z = y + x
            y.record_stream(second)
        assert not event.query() and not second.query()
    second.synchronize()
    assert event.query() and z.cpu().tolist() == [3] * 4
    event = torch.Event("abacus")
    event.synchronize()  # never recorded: nothing to wait for
    assert event.query()


def test_each_thread_begins_on_the_default_stream() -> None:
    with torch.Stream("abacus"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.accelerator.current_stream).result().stream_id == 0


def _use_the_device() -> None:
    with pytest.raises(RuntimeError, match="^Cannot re-initialize abacus in forked subprocess"):
        torch.ones(2, device="abacus")


def test_a_forked_child_says_that_it_cannot_use_the_device() -> None:
    torch.ones(2, device="abacus").cpu()
    child = multiprocessing.get_context("fork").Process(target=_use_the_device)
    child.start()
    child.join()
    assert child.exitcode == 0


# ---- Memory that several streams use


def test_memory_that_another_stream_reads_is_not_given_to_the_next_tensor() -> None:
    side = torch.Stream("abacus")
    x = torch.full((512,), 7.0, device="abacus")
    torch.accelerator.synchronize()
    start = x.data_ptr()
    with held(side):
        with side:
            copy = x + x
        x.record_stream(side)
        del x
        other = torch.zeros(512, device="abacus")
        assert other.data_ptr() != start  # side has not passed the place where x was freed
        torch.accelerator.current_stream().synchronize()
    side.synchronize()
    assert copy.cpu().tolist() == [14] * 512
    assert torch.empty(512, device="abacus").data_ptr() == start  # now it has


def test_each_stream_has_free_blocks_of_its_own() -> None:
    x = torch.empty(512, device="abacus")
    start = x.data_ptr()
    del x
    with torch.Stream("abacus"):
        assert torch.empty(512, device="abacus").data_ptr() != start
    assert torch.empty(512, device="abacus").data_ptr() == start


# ---- Random numbers


def test_the_same_seed_gives_the_same_numbers() -> None:
    def draw() -> list[float]:
        return [
            *torch.rand(3, device="abacus").tolist(),
            *torch.randn(3, device="abacus").tolist(),
            *torch.empty(8, device="abacus").bernoulli_(0.5).tolist(),
        ]

    torch.manual_seed(3)
    first, second = draw(), draw()
    torch.manual_seed(3)
    assert draw() == first != second
    with torch.random.fork_rng(device_type="abacus"):
        draw()
    assert draw() == second
    generator = torch.Generator("abacus").manual_seed(3)
    assert torch.rand(3, device="abacus", generator=generator).tolist() == first[:3]
    assert torch.rand(3, device="abacus", generator=generator.clone_state()).tolist() != first[:3]
    with pytest.raises(RuntimeError, match="Expected a 'abacus' device type for generator but found 'cpu'"):
        torch.rand(3, device="abacus", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="^RNG state is wrong size"):
        torch.abacus.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_the_numbers_have_their_distributions() -> None:
    torch.manual_seed(0)
    x = torch.empty(100, 200, device="abacus").t()
    for draw, mean, std in ((lambda: x.uniform_(-1, 3), 1, 4 / 12**0.5), (lambda: x.normal_(2, 3), 2, 3)):
        host = draw().cpu()
        assert abs(host.mean() - mean) < 0.1 and abs(host.std() - std) < 0.1
        assert host.unique().numel() > 19_000
    assert set(x.bernoulli_(0.25).cpu().unique().tolist()) == {0, 1} and abs(x.cpu().mean() - 0.25) < 0.02


def test_a_checkpoint_draws_the_same_numbers_again() -> None:
    torch.manual_seed(0)
    x = torch.ones(100, device="abacus", requires_grad=True)
    y = checkpoint(lambda t: t * t * torch.rand_like(t), x, use_reentrant=False)
    torch.rand(5, device="abacus")
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), 2 * y.detach().cpu())
