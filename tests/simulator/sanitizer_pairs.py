"""Pairs of a bug and its repair, for the sanitizer. A pair is one function, and ``fixed`` says which of the two runs.

If a bug is reduced from a public bug of a real project, ``link`` is the address of that bug.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import threading
from collections.abc import Callable
from typing import NamedTuple

import torch
from comparison import DEVICE
from openreg_c import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    HostFn,
    Kernel,
    Operand,
    OperandsFn,
    call,
    get_pointer,
    lib,
    malloc,
)

from torch_openreg import openreg
from torch_openreg.openreg import sanitizer

Body = Callable[[bool], None]


class Pair(NamedTuple):
    kind: str  # the check of the sanitizer that finds the bug
    body: Body
    link: str


PAIRS: list[Pair] = []


def pair(kind: str, link: str = "") -> Callable[[Body], Body]:
    def add(body: Body) -> Body:
        PAIRS.append(Pair(kind, body, link))
        return body

    return add


def reports_of(pair: Pair, fixed: bool) -> list[sanitizer.Report]:
    """What all checks together report about one program of a pair."""
    may_fail = contextlib.nullcontext() if fixed else contextlib.suppress(RuntimeError)  # a bug may fail an operator
    with sanitizer.enable("race,init,memory,leak,graph", mode="report") as session, may_fail:
        pair.body(fixed)
    return session.reports


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device=DEVICE)


def current() -> torch.Stream:
    return torch.accelerator.current_stream()


def new_stream() -> torch.Stream:
    return torch.Stream(device=DEVICE)


def pinned(*shape: int) -> torch.Tensor:
    return torch.ones(*shape).pin_memory()


def race() -> None:
    x = ones(4, 8)
    side = new_stream()
    side.wait_stream(current())
    with side:
        x.mul_(2)
    x.sum()


# ---- races between streams -------------------------------------------------------------------------------------------


@pair("race")
def reads_before_the_side_stream_has_written(fixed: bool) -> None:
    x = ones(64)
    side = new_stream()
    side.wait_stream(current())
    with side:
        x.mul_(2)
    if fixed:
        current().wait_stream(side)
    x.sum()
    side.synchronize()


@pair("race")
def side_stream_reads_before_the_main_stream_has_written(fixed: bool) -> None:
    x = ones(64)
    side = new_stream()
    if fixed:
        side.wait_stream(current())
    with side:
        y = x + 1
    side.synchronize()
    del y


@pair("race")
def overwrites_what_the_side_stream_still_reads(fixed: bool) -> None:
    x = ones(64)
    side = new_stream()
    side.wait_stream(current())
    with side:
        y = x * 2
    if fixed:
        current().wait_stream(side)
    x.zero_()
    side.synchronize()
    del y


@pair("race")
def two_side_streams_write_one_tensor(fixed: bool) -> None:
    x = ones(64)
    first, second = new_stream(), new_stream()
    first.wait_stream(current())
    second.wait_stream(current())
    with first:
        x.add_(1)
    if fixed:
        second.wait_stream(first)
    with second:
        x.mul_(2)
    torch.accelerator.synchronize()


@pair("race")
def an_event_is_recorded_too_early(fixed: bool) -> None:
    x = ones(64)
    side = new_stream()
    side.wait_stream(current())
    event = torch.Event(device=DEVICE)
    if not fixed:
        side.record_event(event)
    with side:
        x.mul_(2)
    if fixed:
        side.record_event(event)
    current().wait_event(event)
    x.sum()
    side.synchronize()


@pair("race")
def waits_for_the_wrong_stream(fixed: bool) -> None:
    x = ones(64)
    side, other = new_stream(), new_stream()
    side.wait_stream(current())
    with side:
        x.mul_(2)
    current().wait_stream(side if fixed else other)
    x.sum()
    torch.accelerator.synchronize()


@pair("race")
def waits_in_the_wrong_direction(fixed: bool) -> None:
    x = ones(64)
    side = new_stream()
    side.wait_stream(current())
    with side:
        x.mul_(2)
    if fixed:
        current().wait_stream(side)
    else:
        side.wait_stream(current())
    x.sum()
    side.synchronize()


@pair("race")
def views_that_overlap_in_one_column(fixed: bool) -> None:
    x = ones(16, 8)
    side = new_stream()
    side.wait_stream(current())
    with side:
        x[:, :4].mul_(2)
    x[:, 4 if fixed else 3 :].add_(1)
    torch.accelerator.synchronize()


@pair("race")
def even_and_odd_rows(fixed: bool) -> None:
    x = ones(16, 8)
    side = new_stream()
    side.wait_stream(current())
    with side:
        x[::2].mul_(2)
    x[1 if fixed else 0 :: 2].add_(1)
    torch.accelerator.synchronize()


@pair("race")
def real_and_imaginary_parts_of_a_large_padded_buffer(fixed: bool) -> None:
    z = torch.zeros(2048, 2048, 2, device=DEVICE)
    side = new_stream()
    side.wait_stream(current())
    with side:
        z[:, :2000, 0].add_(1)
    z[:, :2000, 1 if fixed else 0].add_(1)
    torch.accelerator.synchronize()


@pair("race")
def a_buffer_is_filled_in_hundreds_of_pieces(fixed: bool) -> None:
    x = ones(400, 8)
    side = new_stream()
    side.wait_stream(current())
    with side:
        for row in x.unbind():
            row.mul_(2)
    if fixed:
        current().wait_stream(side)
    x[0].sum()
    torch.accelerator.synchronize()


@pair("race")
def a_transposed_view_reads_the_other_half(fixed: bool) -> None:
    x = ones(8, 8)
    side = new_stream()
    side.wait_stream(current())
    with side:
        x.t()[:4].mul_(2)
    y = x[:, 4:].sum() if fixed else x[:, :5].sum()
    torch.accelerator.synchronize()
    del y


@pair("race")
def an_out_argument_is_written_on_the_side_stream(fixed: bool) -> None:
    a, out = ones(64), ones(64)
    side = new_stream()
    side.wait_stream(current())
    with side:
        torch.mul(a, 2, out=out)
    if fixed:
        current().wait_stream(side)
    torch.add(a, out)
    side.synchronize()


@pair("race")
def another_thread_computes_on_its_own_stream(fixed: bool) -> None:
    x = ones(64)
    side = new_stream()

    def compute() -> None:
        if fixed:
            side.wait_stream(torch.accelerator.current_stream())
        with side:
            x.mul_(2)

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    torch.accelerator.synchronize()


@pair("race")
def a_gradient_is_read_on_another_stream(fixed: bool) -> None:
    w = ones(8).requires_grad_()
    (w * 2).sum().backward()
    side = new_stream()
    if fixed:
        side.wait_stream(current())
    assert w.grad is not None
    with side:
        norm = w.grad.norm()
    side.synchronize()
    del norm


@pair("race")
def a_copy_between_devices_on_a_side_stream(fixed: bool) -> None:
    x = torch.ones(64, device=f"{DEVICE}:1")
    y = ones(64)
    side = new_stream()
    side.wait_stream(current())
    with side:
        y.copy_(x, non_blocking=True)
    if fixed:
        current().wait_stream(side)
    y.sum()
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)


@pair("race")
def the_program_waits_for_the_wrong_device(fixed: bool) -> None:
    x = ones(64)
    side = new_stream()
    side.wait_stream(current())
    with side:
        x.mul_(2)
    openreg.synchronize(0 if fixed else 1)
    x.sum()
    torch.accelerator.synchronize()


@pair("race", "https://github.com/ROCm/pytorch/issues/3194")
def a_consumer_reads_what_the_transfer_stream_copies(fixed: bool) -> None:
    staged, buffer = pinned(256), ones(256)
    transfer = new_stream()
    transfer.wait_stream(current())
    with transfer:
        buffer.copy_(staged, non_blocking=True)
    if fixed:
        current().wait_stream(transfer)
    buffer * 2
    torch.accelerator.synchronize()


@pair("race", "https://github.com/BVLC/caffe/pull/2998")
def a_prefetched_batch_is_refilled_while_it_is_read(fixed: bool) -> None:
    source, batch = pinned(256), ones(256)
    prefetch = new_stream()
    prefetch.wait_stream(current())
    for _ in range(2):
        with prefetch:
            batch.copy_(source, non_blocking=True)
        current().wait_stream(prefetch)
        top = batch.clone()
        if fixed:
            prefetch.wait_stream(current())
    torch.accelerator.synchronize()
    del top


@pair("race", "https://github.com/dmlc/xgboost/issues/10103")
def an_external_stream_goes_on_while_the_library_reads(fixed: bool) -> None:
    data = ones(256)
    library = new_stream()
    library.wait_stream(current())
    with library:
        total = data.sum()
    if fixed:
        current().wait_stream(library)
    data.mul_(3)
    torch.accelerator.synchronize()
    del total


@pair("race")
def two_streams_fill_a_librarys_memory(fixed: bool) -> None:
    memory, source = malloc(256), ones(64)
    side = new_stream()
    a, b = (ctypes.c_void_p(stream.native_handle) for stream in (current(), side))  # type: ignore[attr-defined]
    call("orMemcpyAsync", memory, source.data_ptr(), 256, DEVICE_TO_DEVICE, a)
    if fixed:
        side.wait_stream(current())
    call("orMemsetAsync", memory, 0, 256, b)
    torch.accelerator.synchronize()
    call("orFree", memory)


@pair("race")
def a_result_of_a_custom_operator_is_read_on_another_stream(fixed: bool) -> None:
    launches: list[object] = []

    def compute(x: torch.Tensor) -> torch.Tensor:
        result = torch.empty_like(x)
        launches.append(launch_kernel("compute", result, 64, tell=False))
        return result

    side = new_stream()
    with torch.library._scoped_library("sanitized_pair", "DEF") as library:
        library.define("compute(Tensor x) -> Tensor")
        library.impl("compute", compute, "CompositeExplicitAutograd")
        y = torch.ops.sanitized_pair.compute(ones(64))
        if fixed:
            side.wait_stream(current())
        with side:
            y.sum()
        torch.accelerator.synchronize()


# ---- freed too early -------------------------------------------------------------------------------------------------


@pair("race")
def a_tensor_is_freed_while_the_side_stream_reads(fixed: bool) -> None:
    x = ones(64)
    side = new_stream()
    side.wait_stream(current())
    with side:
        y = x * 2
    if fixed:
        x.record_stream(side)
    del x
    torch.accelerator.synchronize() if fixed else ones(64)
    side.synchronize()
    del y


@pair("race")
def a_result_of_the_side_stream_is_freed_while_the_main_stream_reads(fixed: bool) -> None:
    side = new_stream()
    with side:
        y = ones(64)
    current().wait_stream(side)
    z = y + 1
    if fixed:
        y.record_stream(current())
    del y
    with side:
        other = ones(64)
    torch.accelerator.synchronize()
    del z, other


@pair("race", "https://github.com/meta-pytorch/torchrec/pull/4231")
def a_storage_is_emptied_while_it_is_copied_to_the_host(fixed: bool) -> None:
    x, host = ones(256), pinned(256)
    copies = new_stream()
    copies.wait_stream(current())
    with copies:
        host.copy_(x, non_blocking=True)
    if fixed:
        x.record_stream(copies)
    x.untyped_storage().resize_(0)
    torch.accelerator.synchronize() if fixed else ones(256)
    torch.accelerator.synchronize()


@pair("race", "https://github.com/NVIDIA/TensorRT-LLM/pull/15265")
def indices_of_the_indexer_stream_are_recycled_while_the_caller_reads(fixed: bool) -> None:
    q, indexer = ones(32, 8), new_stream()
    indexer.wait_stream(current())
    with indexer:
        best = q.argmax(1)
        done = indexer.record_event()
    current().wait_event(done)
    chosen = q.gather(1, best[:, None])
    if fixed:
        best.record_stream(current())
    del best
    with indexer:
        later = ones(32)
    torch.accelerator.synchronize()
    del chosen, later


@pair("race", "https://github.com/vllm-project/vllm-ascend/pull/13400")
def a_sampler_divides_by_noise_of_another_stream(fixed: bool) -> None:
    probabilities, noise_stream = ones(16), new_stream()
    for _ in range(2):
        with noise_stream:
            q = torch.empty(16, device=DEVICE).exponential_()
        current().wait_stream(noise_stream)
        probabilities.div_(q)
        if fixed:
            q.record_stream(current())
        del q
    torch.accelerator.synchronize()


@pair("race", "https://github.com/huggingface/pytorch-image-models/pull/2784")
def a_loader_frees_a_batch_before_its_stream_waits_for_the_consumer(fixed: bool) -> None:
    loads = new_stream()
    for _ in range(3):
        if fixed:
            loads.wait_stream(current())
        with loads:
            batch = pinned(64).to(DEVICE, non_blocking=True)
        current().wait_stream(loads)
        result = batch * 2
        del batch
    if fixed:
        loads.wait_stream(current())
    torch.accelerator.synchronize()
    del result


# ---- pinned memory and the host --------------------------------------------------------------------------------------


@pair("race", "https://github.com/pytorch/pytorch/issues/86264")
def the_host_reads_a_copy_that_does_not_block(fixed: bool) -> None:
    x = ones(64)
    y = x.to("cpu", non_blocking=True)
    if fixed:
        torch.accelerator.synchronize()
    y.sum()
    torch.accelerator.synchronize()


@pair("race", "https://github.com/pytorch/pytorch/issues/140296")
def two_copies_are_compared_on_the_host(fixed: bool) -> None:
    x, y = ones(64), ones(64)
    a, b = x.to("cpu", non_blocking=True), y.to("cpu", non_blocking=True)
    if fixed:
        current().synchronize()
    torch.equal(a, b)
    torch.accelerator.synchronize()


@pair("race", "https://github.com/pytorch/pytorch/issues/127612")
def the_host_overwrites_what_is_being_copied(fixed: bool) -> None:
    a, b = pinned(256), torch.zeros(256, device=DEVICE)
    b.copy_(a, non_blocking=True)
    if fixed:
        torch.accelerator.synchronize()
    a[-1].fill_(-1)
    torch.accelerator.synchronize()


@pair("race", "https://github.com/sgl-project/sglang/pull/16493")
def lengths_are_read_on_the_host_too_early(fixed: bool) -> None:
    lengths = torch.arange(8, device=DEVICE)
    on_host = torch.empty(8, dtype=torch.int64, pin_memory=True)
    on_host.copy_(lengths, non_blocking=True)
    if fixed:
        current().record_event().synchronize()
    on_host.max().item()
    torch.accelerator.synchronize()


@pair("race", "https://github.com/stepfun-ai/SteptronOss/pull/38")
def a_received_buffer_is_unpacked_too_early(fixed: bool) -> None:
    buffer = torch.arange(64, device=DEVICE)
    on_host = buffer.to("cpu", non_blocking=not fixed)
    torch.empty(32, dtype=torch.int64).copy_(on_host[:32])
    torch.accelerator.synchronize()


@pair("race", "https://github.com/1bit-MONSTER/1bit-MONSTER/pull/2344")
def one_staging_buffer_serves_two_uploads(fixed: bool) -> None:
    staging, k, v = pinned(64), ones(64), ones(64)
    staging.fill_(1)
    k.copy_(staging, non_blocking=True)
    if fixed:
        current().synchronize()
    staging.fill_(2)
    v.copy_(staging, non_blocking=True)
    torch.accelerator.synchronize()


@pair("race", "https://github.com/cupy/cupy/pull/5155")
def a_tensor_changes_while_it_is_downloaded_by_another_stream(fixed: bool) -> None:
    x, host = ones(64), pinned(64)
    downloads = new_stream()
    downloads.wait_stream(current())
    with downloads:
        host.copy_(x, non_blocking=True)
    if fixed:
        current().wait_stream(downloads)
    x.zero_()
    torch.accelerator.synchronize()


@pair("race")
def the_host_waits_for_an_event_before_the_copy(fixed: bool) -> None:
    x, host = ones(64), pinned(64)
    if fixed:
        host.copy_(x, non_blocking=True)
    event = current().record_event()
    if not fixed:
        host.copy_(x, non_blocking=True)
    event.synchronize()
    host.sum()
    torch.accelerator.synchronize()


@pair("race")
def item_waits_for_its_own_stream_only(fixed: bool) -> None:
    x, host = ones(64), pinned(64)
    side = new_stream()
    side.wait_stream(current())
    with side:
        host.copy_(x, non_blocking=True)
        if fixed:
            x.sum().item()
    if not fixed:
        x.sum().item()
    host.sum()
    torch.accelerator.synchronize()


@pair("race")
def the_host_indexes_before_the_indices_have_arrived(fixed: bool) -> None:
    best, indices = torch.zeros(64, dtype=torch.int64, device=DEVICE), torch.zeros(64, dtype=torch.int64).pin_memory()
    indices.copy_(best, non_blocking=True)
    if fixed:
        current().synchronize()
    torch.arange(64)[indices]
    torch.accelerator.synchronize()


@pair("race")
def numpy_reads_a_copy_that_does_not_block(fixed: bool) -> None:
    on_host = ones(64).to("cpu", non_blocking=True)
    if fixed:
        current().synchronize()
    on_host.numpy().sum()
    torch.accelerator.synchronize()


@pair("race")
def a_list_is_made_of_a_copy_that_does_not_block(fixed: bool) -> None:
    on_host = ones(64).to("cpu", non_blocking=True)
    if fixed:
        current().synchronize()
    on_host.tolist()
    torch.accelerator.synchronize()


@pair("race")
def a_checkpoint_is_saved_before_the_copy_has_ended(fixed: bool) -> None:
    state = {"weight": ones(64).to("cpu", non_blocking=True)}
    if fixed:
        current().synchronize()
    torch.save(state, io.BytesIO())
    torch.accelerator.synchronize()


@pair("race")
def numpy_refills_a_staging_buffer(fixed: bool) -> None:
    staging, x = pinned(64), ones(64)
    batch = staging.numpy()
    for step in range(2):
        batch[:] = step
        x.copy_(staging, non_blocking=True)
        if fixed:
            current().synchronize()


@pair("race")
def a_library_writes_the_half_of_a_buffer_that_is_being_copied(fixed: bool) -> None:
    staging, x = pinned(64), ones(32)
    x.copy_(staging[:32], non_blocking=True)
    ctypes.memset(staging[32 if fixed else 0 :].data_ptr(), 1, 128)
    torch.accelerator.synchronize()


@pair("race")
def a_loaders_thread_refills_a_buffer_that_the_main_thread_uploads(fixed: bool) -> None:
    staging, x = pinned(64), ones(64)
    x.copy_(staging, non_blocking=True)
    copied = current().record_event()

    def refill() -> None:
        if fixed:
            copied.synchronize()
        staging.fill_(2)

    loader = threading.Thread(target=refill)
    loader.start()
    loader.join()
    torch.accelerator.synchronize()


def upload(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copies as a foreign library does: it gets addresses, and does not know the tensors that own the memory."""
    stream = ctypes.c_void_p(current().native_handle)  # type: ignore[attr-defined]
    call("orMemcpyAsync", target.data_ptr(), source.data_ptr(), target.nbytes, HOST_TO_DEVICE, stream)


@pair("race")
def a_staging_buffer_is_freed_while_a_library_copies_it(fixed: bool) -> None:
    x, staging = ones(64), pinned(64)
    upload(x, staging)
    if fixed:
        current().synchronize()
    del staging
    pinned(64)  # may get the memory of `staging`
    torch.accelerator.synchronize()


@pair("race")
def a_pinned_number_is_used_before_it_has_arrived(fixed: bool) -> None:
    scale, x = ones(64).sum().to("cpu", non_blocking=True), ones(64)
    if fixed:
        current().synchronize()
    x.mul_(scale)
    scale.fill_(2)  # the operator has already read the value
    torch.accelerator.synchronize()


# ---- unwritten memory ------------------------------------------------------------------------------------------------


@pair("init")
def empty_instead_of_zeros(fixed: bool) -> None:
    x = torch.zeros(64, device=DEVICE) if fixed else torch.empty(64, device=DEVICE)
    x.add_(1)


@pair("init")
def a_sum_over_a_buffer_of_which_half_is_written(fixed: bool) -> None:
    x = torch.empty(8, 8, device=DEVICE)
    x[:4] = 1
    (x[:4] if fixed else x).sum()


@pair("init")
def only_every_other_column_is_written(fixed: bool) -> None:
    x = torch.empty(8, 8, device=DEVICE)
    x[:, ::2] = 1
    if fixed:
        x[:, 1::2] = 2
    x.sum()


@pair("init")
def a_clone_of_unwritten_memory_is_used(fixed: bool) -> None:
    x = torch.empty(64, device=DEVICE)
    if fixed:
        x.fill_(1)
    y = x.clone()
    y.mul_(2)


def half_written(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.empty(*shape, dtype=dtype, device=DEVICE)
    x[: shape[0] // 2] = 1
    return x


@pair("init")
def a_copy_of_a_wider_type_is_unwritten_where_its_source_is(fixed: bool) -> None:
    for before, after in ((torch.int16, torch.int64), (torch.int32, torch.int64), (torch.float16, torch.float32)):
        y = half_written(8, dtype=before).to(after)
        (y[:4] if fixed else y).sum()


@pair("init")
def a_copy_of_a_narrower_type_is_unwritten_where_its_source_is(fixed: bool) -> None:
    y = half_written(64).half()
    (y[:32] if fixed else y[32:]).sum()


@pair("init")
def a_contiguous_transpose_is_unwritten_in_its_last_columns(fixed: bool) -> None:
    y = half_written(8, 8).t().contiguous()
    (y[:, :4] if fixed else y[:, 4:]).sum()


@pair("init")
def a_channels_last_copy_is_unwritten_in_its_last_channels(fixed: bool) -> None:
    x = torch.empty(2, 4, 3, 3, device=DEVICE)
    x[:, :2] = 1
    y = x.contiguous(memory_format=torch.channels_last)
    (y[:, :2] if fixed else y[:, 2:]).sum()


@pair("init")
def a_repeated_tensor_is_unwritten_in_each_repetition(fixed: bool) -> None:
    y = half_written(8, 4).repeat(1, 2)
    (y[:4] if fixed else y[4:, 4:]).sum()


@pair("init")
def every_other_column_is_a_copy_of_a_half_written_tensor(fixed: bool) -> None:
    y = torch.zeros(8, 2, device=DEVICE)
    y[:, 0] = half_written(8)
    (y[:4] if fixed else y[4:]).sum()


@pair("init")
def unwritten_bytes_are_broadcast_to_every_row(fixed: bool) -> None:
    y = torch.zeros(4, 8, device=DEVICE)
    y.copy_(half_written(8))
    (y[:, :4] if fixed else y[3, 4:]).sum()


@pair("init")
def a_concatenation_is_unwritten_where_its_parts_are(fixed: bool) -> None:
    written, half = ones(4, 2), half_written(4, 3)
    rows = torch.cat([half.t(), written.t(), half.t()])
    columns = torch.cat([half, written], -1)
    out = torch.cat([written, half], 1, out=ones(4, 5))
    part = slice(0, 2) if fixed else slice(2, 4)
    rows[:, part].sum()
    columns[part].sum()
    out[part].sum()
    columns[:, 3:].sum()


@pair("init")
def moved_elements_are_unwritten_where_they_came_from(fixed: bool) -> None:
    x = half_written(4, 3)
    part = slice(2, 4) if fixed else slice(0, 2)
    x.flip(0)[part].sum()
    x.roll(2, 0)[part].sum()
    x.t().flip(1)[:, part].sum()


@pair("init")
def a_stack_is_unwritten_where_its_parts_are(fixed: bool) -> None:
    half = half_written(2)
    square = torch.stack([ones(2), half], 1)
    cube = torch.stack([half_written(2, 2), ones(2, 2)], -1)
    if fixed:
        square[:1].sum(), cube[:1].sum()
        square[:, 0].sum(), cube[..., 1].sum()
    else:
        square[1:].sum(), cube[1:].sum()


@pair("init")
def the_host_is_given_unwritten_bytes(fixed: bool) -> None:
    x = half_written(4, 4)
    part = x[:2] if fixed else x
    part.cpu()
    part.t().cpu()
    part.to("cpu", torch.float64)
    part.tolist()
    part.numpy(force=True)


@pair("init")
def the_host_computes_with_a_pinned_copy_of_unwritten_bytes(fixed: bool) -> None:
    on_host = half_written(8).to("cpu", non_blocking=True)
    current().synchronize()
    (on_host[:4] if fixed else on_host).sum()


@pair("init")
def the_host_changes_a_pinned_copy_of_unwritten_bytes(fixed: bool) -> None:
    on_host = half_written(8).to("cpu", non_blocking=True)
    current().synchronize()
    if fixed:
        on_host[4:] = 1
    on_host.add_(1)


@pair("init")
def a_librarys_memory_is_downloaded_before_it_is_written(fixed: bool) -> None:
    memory, on_host = malloc(256), ctypes.create_string_buffer(256)
    if fixed:
        call("orMemset", memory, 0, 256)
    call("orMemcpy", on_host, memory, 256, DEVICE_TO_HOST)
    call("orFree", memory)


@pair("init")
def a_grid_is_not_written(fixed: bool) -> None:
    image = torch.empty(1, 1, 8, 8, device=DEVICE)
    image[:, :, :4] = 1
    grid = torch.full((1, 2, 2, 2), -0.9, device=DEVICE) if fixed else torch.empty(1, 2, 2, 2, device=DEVICE)
    image.requires_grad_(), grid.requires_grad_()
    torch.nn.functional.grid_sample(image, grid, align_corners=True).sum().backward()


@pair("init")
def segments_end_where_nobody_has_written(fixed: bool) -> None:
    data = half_written(8).requires_grad_()
    offsets = torch.tensor([0, 2, 4], device=DEVICE)
    sums = torch.segment_reduce(data, "sum", offsets=offsets)
    (sums.sum() if fixed else data.sum()).backward()


@pair("init")
def attention_reads_the_padding_of_its_keys(fixed: bool) -> None:
    keys = torch.empty(1, 2, 8, 4, device=DEVICE)
    keys[:, :, :5] = 1
    mask = (torch.arange(8, device=DEVICE) < 5).view(1, 1, 1, 8) if fixed else None
    torch.nn.functional.scaled_dot_product_attention(ones(1, 2, 1, 4), keys, keys, attn_mask=mask)


@pair("init")
def an_index_or_a_mask_is_not_written(fixed: bool) -> None:
    table = half_written(4, 4)
    mask = (torch.zeros if fixed else torch.empty)(4, 4, dtype=torch.bool, device=DEVICE)
    torch.where(mask, table, table)
    table.masked_fill(mask, 0)
    index = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    ones(4, 4).index_add_(0, index, ones(1, 4) if fixed else torch.empty(1, 4, device=DEVICE))
    table[index], table.index_select(0, index), table.gather(0, index.view(1, 1))


@pair("init")
def a_product_is_added_to_what_nobody_has_written(fixed: bool) -> None:
    beta = 0 if fixed else 1
    matrix, batch = ones(4, 4), ones(2, 4, 4)
    for matrices in (lambda: torch.empty(4, 4, device=DEVICE), lambda: torch.empty(2, 4, 4, device=DEVICE)[0]):
        torch.addmm(matrices(), matrix, matrix, beta=beta)
        matrices().addmm_(matrix, matrix, beta=beta)
        torch.addbmm(matrices(), batch, batch, beta=beta)
    torch.addmv(torch.empty(4, device=DEVICE), matrix, matrix[0], beta=beta)
    torch.baddbmm(torch.empty(2, 4, 4, device=DEVICE), batch, batch, beta=beta)


@pair("init")
def a_factor_is_used_beyond_its_written_triangle(fixed: bool) -> None:
    factor = torch.empty(4, 4, device=DEVICE)
    for row in range(4):
        factor[row, : row + 1] = 1
        factor[row, row] = 2
    torch.linalg.solve_triangular(factor, ones(4, 1), upper=False)
    torch.linalg.cholesky(factor)
    torch.cholesky_solve(ones(4, 1), factor)
    torch.linalg.eigvalsh(factor)
    factor.trace()
    if not fixed:
        factor @ ones(4)


@pair("init")
def a_bag_reads_rows_of_a_half_written_table(fixed: bool) -> None:
    table = half_written(16, 4)
    with torch.no_grad():
        torch.nn.functional.embedding_bag(torch.arange(4, device=DEVICE).view(1, 4), table, mode="sum")
    if not fixed:
        table.sum()


@pair("init")
def new_empty_as_an_accumulator(fixed: bool) -> None:
    x = ones(4, 4)
    total = x.new_zeros(4) if fixed else x.new_empty(4)
    for row in x:
        total += row


@pair("init")
def an_accumulator_is_made_with_empty_and_filled_by_index(fixed: bool) -> None:
    index, rows = torch.zeros(1, dtype=torch.int64, device=DEVICE), ones(1, 4)

    def accumulator() -> torch.Tensor:
        return (torch.zeros if fixed else torch.empty)(3, 4, device=DEVICE)

    accumulator().index_add_(0, index, rows).sum()
    accumulator().index_add(0, index, rows)[0].sum()
    accumulator().scatter_add_(0, index.expand(1, 4), rows)[0].sum()
    accumulator().scatter_reduce_(0, index.expand(1, 4), rows, "amax")[0].sum()
    accumulator().index_put_((index,), rows, accumulate=True)[0].sum()


@pair("init")
def the_index_or_the_mask_of_an_assignment_is_not_written(fixed: bool) -> None:
    new = torch.zeros if fixed else torch.empty
    x = ones(4, 4)
    x[new(4, dtype=torch.bool, device=DEVICE)] = 1.0
    if fixed:  # an unwritten index may be out of bounds, and the kernel would fail
        x[new(2, dtype=torch.int64, device=DEVICE)] = ones(2, 4)


@pair("init")
def a_parameter_that_is_never_initialised(fixed: bool) -> None:
    weight = torch.nn.Parameter(torch.empty(4, 4, device=DEVICE))
    if fixed:
        torch.nn.init.xavier_uniform_(weight)
    ones(2, 4) @ weight


@pair("init", "https://github.com/vllm-project/vllm/issues/940")
def a_cache_of_keys_is_made_with_empty(fixed: bool) -> None:
    cache = (torch.zeros if fixed else torch.empty)(4, 16, 8, device=DEVICE)
    cache[0, :3] = 1
    scores = cache[0] @ ones(8)
    scores.softmax(0)


@pair("init", "https://github.com/pytorch/FBGEMM/pull/5754")
def a_gradient_whose_tail_rows_are_not_written(fixed: bool) -> None:
    lengths, longest = [2, 5], 3
    gradient = (torch.zeros if fixed else torch.empty)(sum(lengths), 4, device=DEVICE)
    start = 0
    for length in lengths:
        gradient[start : start + min(length, longest)] = 1
        start += length
    gradient.norm()


@pair("init", "https://github.com/pytorch/pytorch/issues/1347")
def a_new_output_is_multiplied_by_zero(fixed: bool) -> None:
    a, b = ones(4, 4), ones(4, 4)
    output = a.new_empty(4, 4)
    if fixed:
        torch.mm(a, b, out=output)
    else:
        output.mul_(0).add_(a @ b)


@pair("init", "https://github.com/jmschrei/pomegranate/pull/1121")
def minus_infinity_by_subtraction_from_empty(fixed: bool) -> None:
    if fixed:
        alpha = torch.full((4, 4), float("-inf"), device=DEVICE)
    else:
        alpha = torch.empty(4, 4, device=DEVICE) - float("inf")
    alpha[0] = 0
    alpha.logsumexp(0)


@pair("init", "https://github.com/NVIDIA/apex/pull/1322")
def padded_positions_of_an_output_stay_unwritten(fixed: bool) -> None:
    output = (torch.zeros if fixed else torch.empty)(2, 6, 4, device=DEVICE)
    for row, length in enumerate([6, 3]):
        output[row, :length] = 1
    torch.nn.functional.layer_norm(output, (4,))


# ---- memory: kernels of one's own ------------------------------------------------------------------------------------


names: dict[str, bytes] = {}  # keeps the names: a report may name a kernel long after it has ended


def run_kernel(name: str, tensor: torch.Tensor, elements: int, tell: bool = True, first: int = 0) -> None:
    """Runs a kernel that writes ``elements`` float32 zeros to ``tensor``, from element ``first`` on. Waits for it."""
    kept = launch_kernel(name, tensor, elements, first, tell)
    torch.accelerator.synchronize()
    del kept


def launch_kernel(name: str, tensor: torch.Tensor, elements: int, first: int = 0, tell: bool = True) -> object:
    """As ``run_kernel``, but does not wait. The result must live until the kernel has run."""
    address, size = tensor.data_ptr(), 4 * tensor.numel()

    def write(_: object) -> None:
        ctypes.memset(get_kernel_pointer(address) + 4 * first, 0, 4 * elements)

    def operands(_: object, visit: Callable[..., None], context: object) -> None:
        operand = Operand(address, size, 0, None, None, 2)
        visit(ctypes.byref(operand), context)

    run, described = HostFn(write), OperandsFn(operands)
    kernel = Kernel(names.setdefault(name, name.encode()), described if tell else OperandsFn(0), None)
    stream = ctypes.c_void_p(current().native_handle)  # type: ignore[attr-defined]
    call("orLaunchDescribed", stream, run, None, 0, ctypes.byref(kernel))
    return run, described


def get_kernel_pointer(address: int) -> int:
    function = lib.orGetKernelPointer
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return int(function(address))


@pair("memory", "https://github.com/risc0/risc0/issues/3803")
def a_kernel_rounds_its_grid_up_and_has_no_bounds_check(fixed: bool) -> None:
    x = ones(90)
    run_kernel("eltwise_zeroize", x, 90 if fixed else 128)


@pair("memory", "https://github.com/numba/numba/issues/7284")
def a_kernel_writes_one_element_too_many(fixed: bool) -> None:
    x = ones(128)
    run_kernel("mutate", x, 128 if fixed else 129)


@pair("memory")
def a_kernel_writes_before_its_tensor(fixed: bool) -> None:
    neighbours = [ones(32), ones(32)]
    run_kernel("shift", neighbours[1], 1, first=0 if fixed else -1)


@pair("memory")
def a_kernel_is_given_a_size_that_was_rounded_up(fixed: bool) -> None:
    x = ones(90)
    run_kernel("zeroize", x if fixed else Rounded(x), 90)  # type: ignore[arg-type]


class Rounded:
    """A tensor as a library describes it: its address, and its size rounded up."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.data_ptr = tensor.data_ptr

    def numel(self) -> int:
        return 128


@pair("memory")
def a_copy_and_a_fill_are_longer_than_the_tensor(fixed: bool) -> None:
    x, y = ones(90), ones(128)
    size = 4 * (90 if fixed else 91)
    stream = ctypes.c_void_p(current().native_handle)  # type: ignore[attr-defined]
    call("orMemcpyAsync", x.data_ptr(), y.data_ptr(), size, DEVICE_TO_DEVICE, stream)
    call("orMemsetAsync", x.data_ptr(), 0, size, stream)
    torch.accelerator.synchronize()


@pair("memory")
def a_kernel_writes_past_the_end_of_a_tensor_that_is_gone_when_it_runs(fixed: bool) -> None:
    kept = launch_kernel("custom", ones(32), 32 if fixed else 33)
    torch.accelerator.synchronize()
    del kept


@pair("memory")
def a_kernel_that_tells_nothing_writes_past_the_end(fixed: bool) -> None:
    x = ones(32)
    run_kernel("custom", x, 32 if fixed else 33, tell=False)


@pair("memory")
def a_kernel_uses_a_tensor_that_is_gone(fixed: bool) -> None:
    x = ones(64)
    kept = x.detach()
    del x
    if fixed:
        run_kernel("custom", kept, 64)
    else:
        gone = Gone(kept)
        del kept
        run_kernel("custom", gone, 64)  # type: ignore[arg-type]


class Gone:
    """The address and the size of a tensor, kept by a library that keeps no reference to the tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._address, self._count = tensor.data_ptr(), tensor.numel()

    def data_ptr(self) -> int:
        return self._address

    def numel(self) -> int:
        return self._count


@pair("memory")
def a_kernel_uses_a_tensor_that_is_gone_after_another_was_made(fixed: bool) -> None:
    x = ones(64)
    gone = Gone(x)
    if not fixed:
        del x
    y = ones(64)
    run_kernel("custom", gone, 64)  # type: ignore[arg-type]
    del y


@pair("memory")
def a_library_uses_the_addresses_of_a_tensor_that_is_gone(fixed: bool) -> None:
    gone = Gone(ones(8 << 20))
    torch.accelerator.synchronize()
    memory = 0
    if fixed:  # the addresses belong to the library now
        openreg.memory.empty_cache()
        memory = malloc(32 << 20)
        assert memory == gone.data_ptr()
    run_kernel("library", gone, 64)  # type: ignore[arg-type]
    call("orFree", memory)


@pair("memory")
def a_kernel_uses_memory_that_its_library_has_freed(fixed: bool) -> None:
    memory = malloc(4096)
    if not fixed:
        call("orFree", memory)
    run_kernel("library", At(memory), 0)  # type: ignore[arg-type]
    if fixed:
        call("orFree", memory)


class At:
    """A library's memory of 4,096 bytes."""

    def __init__(self, memory: int) -> None:
        self._memory = memory

    def data_ptr(self) -> int:
        return self._memory

    def numel(self) -> int:
        return 1024


# ---- graphs ----------------------------------------------------------------------------------------------------------


def captured(
    compute: Callable[[], object], pool: tuple[int, int] | None = None, stream: torch.Stream | None = None
) -> torch.accelerator.Graph:
    graph = torch.accelerator.Graph(pool=pool)
    with stream or new_stream(), graph:
        compute()
    return graph


@pair("race")
def a_result_of_a_replay_is_read_on_another_stream(fixed: bool) -> None:
    x, side, results = ones(64), new_stream(), []
    graph = captured(lambda: results.append(x * 2))
    graph.replay()
    if fixed:
        side.wait_stream(current())
    with side:
        y = results[0].sum()
    side.synchronize()
    del y


@pair("race")
def an_input_is_overwritten_while_a_replay_reads_it(fixed: bool) -> None:
    x, side, results = ones(64), new_stream(), []
    graph = captured(lambda: results.append(x * 2))
    side.wait_stream(current())
    with side:
        graph.replay()
    if fixed:
        current().wait_stream(side)
    x.fill_(3)
    side.synchronize()


@pair("race")
def the_host_reads_what_a_replay_copies_to_it(fixed: bool) -> None:
    x, target = ones(64), pinned(64)
    graph = captured(lambda: target.copy_(x, non_blocking=True))
    graph.replay()
    if fixed:
        current().synchronize()
    target.sum()
    current().synchronize()


@pair("race")
def two_graphs_of_one_pool_are_replayed_on_two_streams(fixed: bool) -> None:
    x, first, second = ones(64), new_stream(), new_stream()
    one = captured(lambda: x.mul(2).add(1), stream=first)
    other = captured(lambda: x.mul(3).add(1), one.pool(), stream=first)
    first.wait_stream(current())
    second.wait_stream(current())
    with first:
        one.replay()
    if fixed:
        second.wait_stream(first)
    with second:
        other.replay()
    torch.accelerator.synchronize()


def two_branches(first: Callable[[], object], second: Callable[[], object], ordered: bool) -> torch.accelerator.Graph:
    """Captures a graph with ``first`` in one branch and ``second`` in another one, or after ``first`` if ``ordered``."""
    side = new_stream()

    def compute() -> None:
        side.wait_stream(current())
        first()
        if ordered:
            side.wait_stream(current())
        with side:
            second()
        current().wait_stream(side)

    return captured(compute)


@pair("race")
def a_branch_of_a_graph_writes_what_another_branch_reads(fixed: bool) -> None:
    x, results = ones(64), []
    two_branches(lambda: results.append(x * 2), lambda: x.add_(1), fixed)


@pair("race")
def two_branches_of_a_graph_write_one_tensor(fixed: bool) -> None:
    x, source = ones(64), ones(64)
    two_branches(
        lambda: x[:40].zero_(), lambda: x[40 if fixed else 32 :].copy_(source[:24] if fixed else source[:32]), False
    )


@pair("race")
def a_branch_of_a_graph_reads_a_result_before_the_other_branch_has_written_it(fixed: bool) -> None:
    x, results = ones(64), []
    two_branches(lambda: results.append(x * 2), lambda: results.append(results[0] + 1), fixed)


@pair("race")
def an_event_of_a_replay_is_recorded_before_its_last_kernel(fixed: bool) -> None:
    x, side, results, event = ones(64), new_stream(), [], ctypes.c_void_p()
    call("orEventCreate", ctypes.byref(event))

    def compute() -> None:
        stream = ctypes.c_void_p(current().native_handle)  # type: ignore[attr-defined]
        if not fixed:
            call("orEventRecordWithFlags", event, stream, 1)
        results.append(x * 2)
        if fixed:
            call("orEventRecordWithFlags", event, stream, 1)

    graph = captured(compute)
    graph.replay()
    waiting = ctypes.c_void_p(side.native_handle)  # type: ignore[attr-defined]
    call("orStreamWaitEvent", waiting, event, 0)
    with side:
        y = results[0].sum()
    side.synchronize()
    del y
    call("orEventDestroy", event)


@pair("race")
def a_graph_within_a_graph_is_not_ordered_after_the_other_branch(fixed: bool) -> None:
    x, results = ones(64), []
    inner = captured(lambda: x.add_(1))
    two_branches(lambda: results.append(x * 2), inner.replay, fixed)


@pair("init")
def a_result_is_read_before_the_first_replay(fixed: bool) -> None:
    x, results = ones(64), []
    graph = captured(lambda: results.append(x * 2))
    if fixed:
        graph.replay()
    results[0].sum()


@pair("memory")
def a_replay_reads_an_input_that_others_have_now(fixed: bool) -> None:
    inputs, results = [ones(64)], []
    graph = captured(lambda: results.append(inputs[0] * 2))
    if not fixed:
        inputs.clear()
    other = ones(60)
    graph.replay()
    del other


@pair("memory")
def a_replay_reads_an_input_that_nobody_has_any_more(fixed: bool) -> None:
    inputs, results = [ones(64)], []
    graph = captured(lambda: results.append(inputs[0] * 2))
    if not fixed:
        inputs.clear()
    graph.replay()


@pair("graph")
def the_next_batch_is_another_tensor(fixed: bool) -> None:
    x, results = ones(64), []
    graph = captured(lambda: results.append(x * 2))
    for value in (2.0, 3.0):
        batch = torch.full((64,), value, device=DEVICE)
        if fixed:
            x.copy_(batch)
        graph.replay()


@pair("graph")
def a_number_of_the_capture_changes(fixed: bool) -> None:
    rate = torch.full((), 0.5, device=DEVICE) if fixed else 0.5
    x = ones(64)
    graph = captured(lambda: x.mul_(rate))
    graph.replay()
    if isinstance(rate, torch.Tensor):
        rate.fill_(0.25)
    else:
        rate = 0.25
    graph.replay()


@pair("graph")
def a_learning_rate_of_the_capture_changes(fixed: bool) -> None:
    weight = torch.nn.Parameter(ones(8))
    weight.grad = ones(8)
    rate = torch.full((), 0.5, device=DEVICE) if fixed else 0.5
    optimizer = torch.optim.Adam([weight], lr=rate, capturable=True)
    optimizer.step()
    graph = captured(optimizer.step)
    graph.replay()
    if isinstance(rate, torch.Tensor):
        rate.fill_(0.25)
    else:
        optimizer.param_groups[0]["lr"] = 0.25
    graph.replay()


@pair("graph")
def a_scalar_of_the_host_changes_after_the_capture(fixed: bool) -> None:
    x, scale, results = ones(64), torch.full((), 2.0), []
    if fixed:
        scale = scale.to(DEVICE)
    graph = captured(lambda: results.append(x * scale))
    scale.fill_(3)
    graph.replay()


# ---- leaks -----------------------------------------------------------------------------------------------------------

kept: list[object] = []


@pair("leak")
def a_list_that_only_grows(fixed: bool) -> None:
    for _ in range(3):
        x = ones(64)
        kept.append(x.sum().item() if fixed else x)


@pair("leak", "https://github.com/BatsResearch/labelmodels/issues/4")
def a_running_loss_keeps_the_graph(fixed: bool) -> None:
    w = ones(8).requires_grad_()
    running: object = 0.0
    for _ in range(3):
        loss = (w * 2).sum()
        running = running + (loss.item() if fixed else loss)  # type: ignore[operator]
    kept.append(running)


@pair("leak", "https://github.com/rballester/tntorch/pull/19")
def a_history_of_losses_keeps_every_graph(fixed: bool) -> None:
    w = ones(8).requires_grad_()
    for _ in range(3):
        loss = (w * 2).sum()
        kept.append(float(loss) if fixed else loss)


@pair("leak", "https://github.com/horovod/horovod/pull/641")
def a_reduced_metric_is_not_detached(fixed: bool) -> None:
    w = ones(8).requires_grad_()
    metric = (w * 2).mean()
    kept.append(metric.detach().cpu() if fixed else metric)


@pair("leak")
def a_hook_keeps_every_activation(fixed: bool) -> None:
    model = torch.nn.Linear(4, 4).to(DEVICE)
    handle = model.register_forward_hook(lambda module, inputs, output: kept.append(output))
    if fixed:
        handle.remove()
    model(ones(2, 4))


@pair("leak")
def pinned_buffers_that_nobody_drops(fixed: bool) -> None:
    buffer = pinned(64)
    if not fixed:
        kept.append(buffer)


@pair("leak")
def a_librarys_memory_that_nobody_frees(fixed: bool) -> None:
    on_device, on_host = malloc(4096), get_pointer("orMallocHost", 4096)
    if fixed:
        call("orFree", on_device)
        call("orFreeHost", on_host)


@pair("leak")
def a_stream_that_nobody_destroys(fixed: bool) -> None:
    stream = get_pointer("orStreamCreate")
    if fixed:
        call("orStreamDestroy", stream)


@pair("leak")
def an_event_that_nobody_destroys(fixed: bool) -> None:
    event = get_pointer("orEventCreate")
    if fixed:
        call("orEventDestroy", event)


def forget() -> None:
    """Drops what the pairs of leaks keep."""
    kept.clear()
    gc.collect()
    openreg.synchronize()
