"""Operators on sparse tensors in a capture: which a capture takes, what a replay reads, and what is refused as on CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from comparison import DEVICE_0
from torch import nn

from torch_openreg import openreg

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .* Graph is empty"),  # of captures that are refused
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR) tensor support is in beta state"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
]

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture(autouse=True, params=["inline", "async", "chaos"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    with openreg.execution_mode(request.param, seed=7):
        yield request.param
        torch.accelerator.synchronize()


def operands() -> Operands:
    """A dense matrix, and two sparse ones with the same elements: COO and CSR."""
    elements = torch.tensor([[0.0, 2, 0], [3, 0, 4], [0, 0, 5]]).to(DEVICE_0)
    return torch.arange(1.0, 10).view(3, 3).to(DEVICE_0), elements.to_sparse(), elements.to_sparse_csr()


def dense(value: torch.Tensor) -> torch.Tensor:
    return value if value.layout == torch.strided else value.to_dense()


CAPTURED: dict[str, Callable[..., torch.Tensor]] = {
    "to_dense": lambda d, s, c: s.to_dense(),
    "to_dense, csr": lambda d, s, c: c.to_dense(),
    "to csr": lambda d, s, c: s.to_sparse_csr(),
    "to coo": lambda d, s, c: c.to_sparse(),
    "mm": lambda d, s, c: torch.sparse.mm(s, d),
    "mm, csr": lambda d, s, c: c @ d,
    "mv": lambda d, s, c: torch.mv(s, d[0]),
    "mv, csr": lambda d, s, c: torch.mv(c, d[0]),
    "addmm": lambda d, s, c: torch.sparse.addmm(d, s, d, beta=0.5),
    "addmm, csr": lambda d, s, c: torch.addmm(d, c, d, alpha=2),
    "dense + sparse": lambda d, s, c: d + s,
    "dense + csr": lambda d, s, c: d + c,
    "add_": lambda d, s, c: d.clone().add_(s, alpha=0.5),
    "sparse + sparse": lambda d, s, c: torch.add(s, s, alpha=3),
    "sparse * sparse": lambda d, s, c: s * s,
    "sparse * dense": lambda d, s, c: s * d,
    "sparse * number": lambda d, s, c: s * 2,
    "csr * number": lambda d, s, c: c * 2,
    "sin": lambda d, s, c: s.sin(),
    "neg, csr": lambda d, s, c: -c,
    "sum": lambda d, s, c: s.sum(),
    "cat": lambda d, s, c: torch.cat([s, s]),
    "clone": lambda d, s, c: s.clone(),
    "t": lambda d, s, c: s.t(),
    "t, csr": lambda d, s, c: c.t().to_dense(),
    "unsqueeze": lambda d, s, c: s.unsqueeze(0),
    "sparse_mask": lambda d, s, c: d.sparse_mask(s),
    "values": lambda d, s, c: s.values() * 2,
    "values, csr": lambda d, s, c: c.values() + c.col_indices(),
    "new coo": lambda d, s, c: torch.sparse_coo_tensor(s.indices(), s.values() * 2, s.shape).to_dense(),
    "new csr": lambda d, s, c: torch.sparse_csr_tensor(c.crow_indices(), c.col_indices(), c.values() * 2, c.shape) @ d,
    "coalesced already": lambda d, s, c: s.coalesce().to_dense(),
    "uncoalesced": lambda d, s, c: torch.cat([s, s]).to_dense(),
}


@pytest.mark.parametrize("case", CAPTURED)
def test_a_replay_of_a_captured_call_gives_the_bits_of_eager_for_other_values_and_indices(case: str) -> None:
    d, s, c = operands()
    results = []
    graph = torch.accelerator.Graph()
    with torch.Stream(), graph:
        results.append(CAPTURED[case](d, s, c))
    assert s.to_dense().tolist() == [[0, 2, 0], [3, 0, 4], [0, 0, 5]]  # nothing has run
    for row in ([0, 1, 1, 2], [0, 0, 1, 2]):
        s.indices()[0].copy_(torch.tensor(row))
        c.crow_indices().copy_(torch.tensor([0, 1, 3, 4] if row[1] else [0, 2, 3, 4]))
        for each in (d, s.values(), c.values()):
            each.mul_(3)
        graph.replay()
        expected = CAPTURED[case](d, s, c)
        assert results[0].layout == expected.layout and results[0].shape == expected.shape
        assert torch.equal(dense(results[0]), dense(expected))


REFUSED: dict[str, Callable[..., object]] = {
    "coalesce": lambda d, s, c: torch.cat([s, s]).coalesce(),
    "coalesce a sum": lambda d, s, c: (s + s).coalesce(),
    "coalesce before a product": lambda d, s, c: torch.cat([s, s], 1) @ torch.cat([d, d]),
    "coalesce a large sum": lambda d, s, c: s + s + s,
    "coalesce before sin": lambda d, s, c: torch.cat([s, s]).sin(),
    "product of two": lambda d, s, c: torch.sparse.mm(s, s),
    "product of two, csr": lambda d, s, c: torch.sparse.mm(c, c),
    "sum of two, csr": lambda d, s, c: c + c,
    "softmax": lambda d, s, c: torch.sparse.softmax(s, 1),
    "sum of rows": lambda d, s, c: torch.sparse.sum(s, 0),
    "row": lambda d, s, c: s[0],
    "to sparse": lambda d, s, c: d.to_sparse(),
    "new coo without a size": lambda d, s, c: torch.sparse_coo_tensor(s.indices(), s.values()),
    "to the CPU": lambda d, s, c: s.cpu(),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cuda_must_count_is_refused_in_its_words(case: str) -> None:
    d, s, c = operands()
    graph = torch.accelerator.Graph()
    with torch.Stream():
        graph.capture_begin()
        with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing") as raised:
            REFUSED[case](d, s, c)
        with pytest.raises(RuntimeError, match="operation failed due to a previous error during capture"):
            graph.capture_end()
    assert "yet" not in str(raised.value)
    assert torch.equal(s.to_dense(), c.to_dense())  # the device works


def test_a_call_that_asks_for_sizes_is_no_node_of_the_graph() -> None:
    _, s, c = operands()
    with torch.Stream(), torch.accelerator.Graph():
        facts = (s._nnz(), s.is_coalesced(), s.sparse_dim(), s.dense_dim(), c._nnz())
        indices = s.indices()
    assert facts == (4, True, 2, 0, 4)
    assert indices.data_ptr() == s.indices().data_ptr()


def test_a_call_with_wrong_operands_raises_its_error_and_the_capture_goes_on() -> None:
    d, s, _ = operands()
    results = []
    graph = torch.accelerator.Graph()
    with torch.Stream(), graph:
        with pytest.raises(RuntimeError, match="addmm: Argument #3 \\(dense\\): Expected dim 0 size 3, got 2"):
            torch.sparse.mm(s, d[:2])
        results.append(torch.sparse.mm(s, d))
    graph.replay()
    assert torch.equal(results[0], torch.sparse.mm(s, d))


def test_a_sparse_tensor_that_a_call_writes_is_not_captured_yet() -> None:
    _, s, _ = operands()
    graph = torch.accelerator.Graph()
    with torch.Stream():
        graph.capture_begin()
        with pytest.raises(RuntimeError, match="which is not supported in a capture yet"):
            s.mul_(2)
        with pytest.raises(RuntimeError, match="operation failed due to a previous error during capture"):
            graph.capture_end()


def test_a_captured_step_with_sparse_gradients_trains_as_eager() -> None:
    weights = []
    for is_captured in (False, True):
        torch.manual_seed(1)
        embedding = nn.Embedding(7, 3, sparse=True).to(DEVICE_0)
        optimizer = torch.optim.SGD(embedding.parameters(), lr=0.5)
        tokens = torch.tensor([1, 2, 2, 5]).to(DEVICE_0)

        def step() -> None:
            embedding(tokens).square().sum().backward()  # noqa: B023
            optimizer.step()  # noqa: B023

        graph = torch.accelerator.Graph()
        if is_captured:
            with torch.Stream(), graph:
                step()
        for batch in ([1, 2, 2, 5], [0, 0, 6, 3]):
            tokens.copy_(torch.tensor(batch))
            if is_captured:
                graph.replay()
            else:
                optimizer.zero_grad()
                step()
        weights.append(embedding.weight.detach())
    assert torch.equal(*weights)
