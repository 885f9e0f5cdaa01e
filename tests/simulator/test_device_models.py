"""Device models: a device has the properties of its model, and refuses what the CUDA or MPS device refuses."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import programs
import pytest
import torch
from models import ERROR, GRADIENTS, TF32, answer, python

from tests.simulator.device_models import __main__ as tables
from tests.simulator.device_models import dispatch_macros
from torch_openreg.simulator import _models
from torch_openreg.simulator._cli import models as models_command

ROOT = Path(__file__).parents[2]


# ---- the model files -------------------------------------------------------------------------------------------------


def test_the_promised_models_exist() -> None:
    assert _models.names() == [
        "consumer-8gb", "cuda-a100", "cuda-h100", "cuda-t4", "cuda-v100", "minimal", "mps-like", "strict",
    ]  # fmt: skip


@pytest.mark.parametrize("name", _models.names())
def test_every_value_and_every_restriction_has_a_source(name: str) -> None:
    model = _models.find(name)
    entries = [
        *model.properties.values(),
        *model.rates.values(),
        *model.absent_dtypes,
        *model.missing_operators,
        *model.restrictions,
    ]
    entries += [each for each in (model.tf32, model.nondeterminism_checks, model.only_operators) if each]
    assert entries and all(len(each["source"]) > 10 or each["source"] == "this project" for each in entries)


@pytest.mark.parametrize("name", _models.names())
def test_the_device_has_the_models_properties(name: str) -> None:
    code = "import json\np = openreg.get_device_properties()\n"
    code += "print(json.dumps({n: getattr(p, n) for n in %r if hasattr(p, n)}))"
    properties = json.loads(answer(code % (list(_models.PROPERTIES),), name))
    model = _models.find(name).numbers
    assert {key: properties[key] for key in model if key in properties} == {
        key: value for key, value in model.items() if key in properties
    }


def test_the_generated_model_files_are_up_to_date() -> None:
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the files are made from the operators of PyTorch 2.13")
    for path, text in tables.files().items():
        assert path.read_text() == text, f"{path}: run python -m tests.simulator.device_models"


def test_a_user_can_write_a_model_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"like": ["cuda-t4"], "properties": {"name": {"value": "mine", "source": "me"}}}))
    assert answer("p = openreg.get_device_properties(); print(p.name, p.major)", str(mine)) == "mine 7"
    for text, sentence in (
        ('{"properties": {"nam": {"value": 1, "source": "me"}}}', "unknown property 'nam'. Did you mean 'name'?"),
        ('{"properties": {"name": {"value": "x"}}}', "gives no source for the property 'name'"),
        ('{"nondeterminism_checks": {"value": false}}', "gives no source for nondeterminism_checks"),
        ('{"propertys": {}}', "has the unknown key 'propertys'"),
        ("{", "cannot be read"),
        ("[" * 100_000, "mine.json cannot be read: maximum recursion depth exceeded"),
        ("[]", "mine.json is not a JSON object"),
        ('{"like": ["mine"]}', "mine.json is like itself"),
        ('{"like": "cuda-t4"}', "mine.json has a `like` that is not a list"),
        ('{"like": ["cuda-t5"]}', "mine.json is like the unknown model 'cuda-t5'. Did you mean 'cuda-t4'?"),
        ('{"properties": {"major": {"source": "me"}}}', "has no \"value\" in the property 'major'"),
        (
            '{"properties": {"major": {"value": "7", "source": "me"}}}',
            "has '7' as the property 'major', which must be a whole",
        ),
        ('{"properties": {"total_memory": {"value": -1, "source": "me"}}}', "has -1 as the property 'total_memory'"),
        (
            '{"properties": {"name": {"value": 7, "source": "me"}}}',
            "has 7 as the property 'name', which must be a text",
        ),
        (
            '{"properties": {"name": {"value": "%s", "source": "me"}}}' % ("x" * 64),
            "which must be a text of at most 63 bytes",
        ),
        (
            '{"properties": {"major": {"value": 2147483648, "source": "me"}}}',
            "has 2147483648 as the property 'major', which must be a whole number from 0 to 2147483647",
        ),
        ('{"properties": {"device_count": {"value": 0, "source": "me"}}}', "which must be a whole number from 1 to 64"),
        (
            '{"properties": {"total_memory": {"value": 1000, "source": "me"}}}',
            "has 1000 as the property 'total_memory', which must be a whole number from 1048576 to 17592186044416",
        ),
        ('{"properties": {"peer_access": {"value": 1, "source": "me"}}}', "which must be true or false"),
        ('{"properties": {"major": {"value": 7, "source": 5}}}', "gives no source for the property 'major'"),
        ('{"properties": []}', "has properties that are not an object of JSON"),
        ('{"about": 5}', "has an `about` that is not a text"),
        ('{"about": "a", "tf32": {}, "about": "b"}', "cannot be read: it has 'about' twice in one object"),
        ('{"rates": {"flops_flat32": {"value": 1, "source": "me"}}}', "unknown rate 'flops_flat32'"),
        ('{"rates": {"launch_time": {"value": 1}}}', "gives no source for the rate 'launch_time'"),
        (
            '{"rates": {"launch_time": {"value": -1, "source": "me"}}}',
            "has -1 as the rate 'launch_time', which must be a number of seconds",
        ),
        (
            '{"rates": {"memory_efficiency": {"value": 1.1, "source": "me"}}}',
            "has 1.1 as the rate 'memory_efficiency', which must be a share above 0, up to 1",
        ),
        (
            '{"rates": {"flops_float32": {"value": 0, "source": "me"}}}',
            "has 0 as the rate 'flops_float32', which must be a number above 0",
        ),
        (
            '{"rates": {"flops_float32": {"value": 1, "source": "me"}}}',
            "has rates without memory_bandwidth, memory_eff",
        ),
        ('{"tf32": {"value": "no", "source": "me"}}', "has 'no' as tf32, which must be true or false"),
        (
            '{"absent_dtypes": [{"dtype": "float65", "error": "TypeError", "message": "m", "source": "me"}]}',
            "unknown dtype in an entry of absent_dtypes: 'float65'. Did you mean 'float64'?",
        ),
        (
            '{"absent_dtypes": [{"dtype": "float64", "error": "TypError", "message": "m", "source": "me"}]}',
            "unknown error in an entry of absent_dtypes: 'TypError'. Did you mean 'TypeError'?",
        ),
        (
            '{"missing_operators": [{"operators": ["aten::mm"], "source": "me"}]}',
            'has no "message" in an entry of missing_operators',
        ),
        (
            '{"restrictions": [{"operators": ["aten::mm"], "argument": "self", "dtypes": ["bool"], "source": "me"}]}',
            'has an entry of restrictions with neither a "kernel" nor a "message"',
        ),
        (
            '{"restrictions": [{"operators": ["aten::mm"], "argument": "self", "dtypes": ["bool"], "kernel": "k", '
            '"message": "m", "source": "me"}]}',
            'has an entry of restrictions with a "kernel" and also a "message" or an "error": '
            "the kernel determines both",
        ),
        (
            '{"restrictions": [{"operators": ["aten::mm"], "argument": "self", "dtypes": [], "kernel": "k", '
            '"source": "me"}]}',
            'has no dtypes in an entry of restrictions: the list "dtypes" is empty',
        ),
        (
            '{"restrictions": [{"operators": ["aten::mm"], "argument": "self", "dtypes": ["bool"], "kernel": "k", '
            '"when": {"mat2": ["bool"]}, "source": "me"}]}',
            'has a "when" in an entry of restrictions that is not written as {"argument": "reduce", "values": ["prod"]}',
        ),
        (
            '{"restrictions": [{"operator": ["aten::mm"], "source": "me"}]}',
            "unknown word in an entry of restrictions: 'operator'. Did you mean 'operators'?",
        ),
        (
            '{"only_operators": {"operators": [], "message": "no", "source": "me"}}',
            "has only_operators whose message does not contain {operator}",
        ),
    ):
        mine.write_text(text)
        with pytest.raises(ValueError, match=re.escape(sentence)):
            _models.find(str(mine))


def test_an_unknown_operator_of_a_model_file_gives_the_closest_one(tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text('{"missing_operators": [{"operators": ["aten::adddmm"], "message": "no", "source": "me"}]}')
    sentence = (
        f"The device model {mine} has the unknown operator 'aten::adddmm'. Did you mean 'aten::addmm'? An operator is "
        "written with its overload, such as 'aten::add.Tensor', and PyTorch must know it when the model is chosen."
    )
    chosen = answer(ERROR + f"print(error(lambda: openreg.device_model({str(mine)!r})))")
    assert chosen == f"ValueError: {sentence}"
    stderr = python("torch.ones(1, device=d)", str(mine)).stderr
    assert f"check_environment: ValueError: OPENREG_MODEL cannot be obeyed. {sentence}" in stderr


@pytest.mark.parametrize(
    ("operator", "row", "sentence"),
    [
        (
            "aten::add",
            {},
            "has the unknown operator 'aten::add'. There are aten::add.Scalar, aten::add.Scalar_out, aten::add.Tensor, "
            "aten::add.out. An operator is written with its overload",
        ),
        (
            "aten::mm",
            {"argument": "slef"},
            "has the unknown argument of aten::mm: 'slef'. Did you mean 'self'? There are self, mat2.",
        ),
        (
            "aten::mm",
            {"when": {"argument": "mat", "values": ["bool"]}},
            "has the unknown argument of aten::mm: 'mat'. Did you mean 'mat2'? There are self, mat2.",
        ),
        (
            "aten::linear",
            {"argument": "input"},
            "has restrictions of 'aten::linear', which PyTorch composes of other operators on this device. Refuse the "
            "operators that it calls, or name it in missing_operators.",
        ),
    ],
)
def test_a_row_that_no_operator_could_obey_is_refused_and_changes_nothing(
    tmp_path: Path, operator: str, row: dict[str, object], sentence: str
) -> None:
    mine = tmp_path / "mine.json"
    default = {"operators": [operator], "argument": "self", "dtypes": ["bool"], "kernel": "k", "source": "me"}
    mine.write_text(json.dumps({"restrictions": [default | row]}))
    code = f"""{ERROR}
from pathlib import Path
print(error(lambda: openreg.device_model(Path({str(mine)!r}))))
assert openreg.models.current() is None
openreg.device_model("cuda-t4")
"""
    assert answer(code).startswith(f"ValueError: The device model {mine} {sentence}")


def test_a_refusal_may_hold_for_some_values_of_another_argument(tmp_path: Path) -> None:
    rows = [
        {
            "operators": ["aten::scatter_reduce.two"],
            "argument": "self",
            "dtypes": ["float32"],
            "when": {"argument": "reduce", "values": ["prod"]},
            "kernel": "k",
            "source": "me",
        },
        {
            "operators": ["aten::mm"],
            "argument": "self",
            "dtypes": ["float16"],
            "when": {"argument": "mat2", "values": ["float16"]},
            "message": "no",
            "error": "ValueError",
            "source": "me",
        },
    ]
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"restrictions": rows}))
    code = f"""{ERROR}
x, index = torch.ones(2, device=d), torch.tensor([0, 1], device=d)
print(error(lambda: x.scatter_reduce(0, index, x, "sum")), error(lambda: x.scatter_reduce(0, index, x, "prod")))
h = torch.ones(2, 2, dtype=torch.half, device=d)
print(error(lambda: h.float() @ h.float()), error(lambda: h @ h))
"""
    assert answer(code, str(mine)).splitlines() == [
        "nothing NotImplementedError: \"k\" not implemented for 'Float'",
        "nothing ValueError: no",
    ]


def test_a_model_is_named_by_a_text_or_a_path() -> None:
    with pytest.raises(
        TypeError, match="^A device model is a name, such as 'cuda-t4', or the path of a file, but got 5."
    ):
        _models.find(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^There is no device model 'CUDA-T4'. Did you mean 'cuda-t4'\?"):
        _models.find("CUDA-T4")


def test_like_may_name_a_file_in_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "base.json").write_text('{"tf32": {"value": true, "source": "me"}}')
    for like in ("base", "base.json"):
        (tmp_path / "mine.json").write_text(json.dumps({"like": [like]}))
        assert _models.find(str(tmp_path / "mine.json")).rounds_to_tf32


def test_a_model_that_does_not_round_is_shown_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text('{"like": ["cuda-a100"], "tf32": {"value": false, "source": "me"}}')
    assert models_command.main([str(mine), "cuda-a100"]) == 0
    assert re.search(r"^TensorFloat-32 +no +yes$", capsys.readouterr().out, re.MULTILINE)
    assert models_command.main([str(mine)]) == 0
    assert "TensorFloat-32" not in capsys.readouterr().out


def test_models_of_the_same_name_in_two_folders_are_two_models(tmp_path: Path) -> None:
    for folder, dtype in (("a", "bool"), ("b", "int8")):
        row = {"operators": ["aten::mm"], "argument": "self", "dtypes": [dtype], "kernel": "k", "source": "me"}
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.json").write_text(json.dumps({"restrictions": [row]}))
    code = f"""
openreg.device_model({str(tmp_path / "a" / "mine.json")!r})
openreg.device_model({str(tmp_path / "a" / "mine.json")!r})
try: openreg.device_model({str(tmp_path / "b" / "mine.json")!r})
except RuntimeError as error: print(error)
"""
    assert answer(code).startswith("This process has the device model 'mine', and the restrictions on its operators")


# ---- choosing one ----------------------------------------------------------------------------------------------------


def test_the_environment_wins_over_the_models_numbers() -> None:
    code = "print(openreg.get_device_properties().total_memory, openreg.device_count())"
    assert answer(code, "cuda-t4", OPENREG_DEVICE_MEMORY="1G", OPENREG_DEVICE_COUNT="3") == f"{1 << 30} 3"


def test_a_program_chooses_before_the_device_starts_and_not_after() -> None:
    code = """
assert openreg.device_count() == 2 and openreg.models.current() is None
openreg.device_model("cuda-t4")
assert openreg.device_count() == 1 and openreg.models.current() == "cuda-t4"
torch.ones(1, device=d)
"""
    answer(code)
    late = python("torch.ones(1, device=d)\nopenreg.device_model('cuda-t4')")
    assert "the devices have started, and keep their model" in late.stderr
    second = python("openreg.device_model('cuda-t4')\nopenreg.device_model('mps-like')")
    assert (
        "This process has the device model 'cuda-t4', and the restrictions on its operators cannot be removed."
        in second.stderr
    )


def test_an_unknown_name_gives_the_closest_one() -> None:
    result = python("torch.ones(1, device='openreg')", "cuda-a10")
    assert (
        "OPENREG_MODEL cannot be obeyed. There is no device model 'cuda-a10'. Did you mean 'cuda-a100'?"
        in result.stderr
    )


def test_an_allocation_beyond_the_models_memory_fails_and_takes_no_host_memory() -> None:
    code = (
        ERROR
        + """
openreg.init()
before = int(open("/proc/self/statm").read().split()[1])
print(error(lambda: torch.empty(9 << 30, dtype=torch.uint8, device=d)).partition(". ")[0])
assert int(open("/proc/self/statm").read().split()[1]) - before < 10000  # in pages: 40 MB if a page has 4 KiB
"""
    )
    assert answer(code, "consumer-8gb") == "OutOfMemoryError: OpenReg out of memory"


def test_devices_reach_each_others_memory_if_the_model_says_so() -> None:
    code = "print(openreg.can_device_access_peer(0, 1), torch.ones(1, device=f'{d}:0').to(f'{d}:1').item())"
    assert answer(code, "consumer-8gb", OPENREG_DEVICE_COUNT="2") == "False 1.0"
    assert answer(code, "cuda-a100") == "True 1.0"


ADDRESSES = """
tensors = [torch.empty(n, dtype=torch.uint8, device=d) for n in (1, 600, 5000, 1 << 20, 3 << 20, (20 << 20) + 1)]
print(max(size for size in (512, 4096, 1 << 20) if all(tensor.data_ptr() % size == 0 for tensor in tensors)))
"""


@pytest.mark.slow
def test_allocations_are_aligned_as_the_model_says(tmp_path: Path) -> None:
    model = tmp_path / "mine.json"

    def aligned(size: int) -> str:
        alignment = {"value": size, "source": "this test"}
        model.write_text(json.dumps({"properties": {"allocation_alignment": alignment}}))
        return str(model)

    assert answer(ADDRESSES) == answer(ADDRESSES, "cuda-a100") == "512"
    assert answer(ADDRESSES, aligned(4096)) == "4096"
    assert answer(ADDRESSES, aligned(1 << 20)) == str(1 << 20)
    for size in (256, 513, 2 << 20):
        said = python("torch.ones(1, device=d)", aligned(size)).stderr
        assert f"The alignment of allocations is {size} bytes, but must be a power of two from 512 to 1048576." in said


MEDIAN = "torch.use_deterministic_algorithms(True)\nprint(error(lambda: torch.ones(3, device=d).median(0)))"


@pytest.mark.slow
@pytest.mark.parametrize("model", [None, "cuda-t4", "strict"])
def test_what_is_nondeterministic_on_cuda_alerts(model: str | None) -> None:
    assert answer(ERROR + MEDIAN, model).startswith("RuntimeError: median CUDA with indices output does not have a det")


def test_mps_raises_no_alert_of_nondeterminism() -> None:
    assert answer(ERROR + MEDIAN, "mps-like") == "nothing"


def test_without_a_model_no_kernel_of_refusals_is_registered() -> None:
    code = "print('InFront' in torch._C._dispatch_dump('aten::mm'))"
    assert (answer(code), answer(code, "cuda-t4")) == ("False", "True")


def test_the_command_lists_and_compares(capsys: pytest.CaptureFixture[str]) -> None:
    def command(*arguments: str) -> str:
        assert models_command.main(arguments) == 0
        return capsys.readouterr().out

    assert all(name in command() for name in _models.names())
    shown = command("cuda-t4", "--sources")
    assert "Tesla T4" in shown and "arch_traits.cuh, sm_750_traits" in shown and "Blas.cpp" in shown
    assert "allocation_alignment              512 bytes" in shown and "nondeterminism checks" in shown
    rows = dict(line.split(maxsplit=1) for line in command("cuda-t4", "cuda-h100").splitlines()[1:])
    assert rows["total_memory"].split() == ["14.8", "GiB", "79.2", "GiB"] and rows["major"].split() == ["7", "9"]
    wrong = programs.run(sys.executable, "-m", "torch_openreg", "models", "cuda-t5", cwd=ROOT, status=2)
    assert "Did you mean 'cuda-t4'?" in wrong.stderr


# ---- what CUDA refuses -----------------------------------------------------------------------------------------------

CELLS = (
    ERROR
    + """
import itertools, json, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, ".")
from tests.simulator.device_models.cells import pin
from tests.support.sample_inputs import sample_inputs
pin(openreg.get_device_capability())
from torch.testing._internal.common_methods_invocations import op_db
messages = ("not implemented for", "Could not run", "is not supported", "only supported on CUDA", "not supported for",
    "Cannot convert ScalarType")
def is_refused(op, dtype):
    def run():
        # 200: max_pool2d has 1,440 samples, which differ in sizes and strides only.
        for sample in itertools.islice(sample_inputs(op, dtype), 200):
            moved = sample.transform(lambda value: value.to(d) if isinstance(value, torch.Tensor) else value)
            op(moved.input, *moved.args, **moved.kwargs)
    message = error(run)
    return any(words in message for words in messages)
refused = {op.name for op in op_db if set(op.dtypes) - set(op.dtypesIfCUDA)}
wrong = []
for op in op_db:
    if "_scaled_mm" in op.name:  # OpInfo's samples have the same two dtypes, whichever dtype is asked for
        continue
    cpu, cuda = set(op.dtypes), set(op.dtypesIfCUDA)
    if op.name == "norm":
        cuda.add(torch.complex32)  # OpInfo does not list this dtype, but an H100 takes it
    wrong += [["passes", op.formatted_name, str(dtype)] for dtype in cpu - cuda if not is_refused(op, dtype)]
    if op.name in refused:
        wrong += [["is refused", op.formatted_name, str(dtype)] for dtype in cpu & cuda if is_refused(op, dtype)]
print(json.dumps(wrong))
"""
)


@pytest.mark.slow
def test_operators_refuse_the_dtypes_that_only_the_cpu_has_and_accept_those_that_cuda_has_too() -> None:
    assert json.loads(answer(CELLS, "cuda-a100").splitlines()[-1]) == []


@pytest.mark.slow
@pytest.mark.parametrize("model", ["cuda-v100", "cuda-t4", "cuda-h100"])
def test_the_other_cards_refuse_the_same_except_for_products_of_float8(model: str) -> None:
    """So the comparison of all operators with one card is enough; it takes minutes."""
    card, a100 = (
        json.loads((ROOT / "torch_openreg" / "simulator" / "models" / f"{name}.json").read_text())
        for name in (model, "cuda-a100")
    )
    assert card["like"] == a100["like"]
    assert {name.split(".")[0] for each in card["restrictions"] for name in each["operators"]} <= {
        "aten::_scaled_mm",
        "aten::_scaled_mm_v2",
    }


SCALED = (
    ERROR
    + """
one = torch.ones((), device=d)
for left, right in (("e4m3fn", "e4m3fn"), ("e4m3fn", "e5m2"), ("e5m2", "e5m2"), ("e4m3fnuz", "e4m3fn")):
    a, b = (torch.ones(16, 16).to(getattr(torch, f"float8_{name}")).to(d) for name in (left, right))
    print(error(lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)))
"""
)


def test_products_of_float8_are_refused_by_both_dtypes_and_by_cards_without_them() -> None:
    assert answer(SCALED, "cuda-h100").splitlines() == [
        "nothing",
        "nothing",
        "ValueError: Multiplication of two Float8_e5m2 matrices is not supported",
        "RuntimeError: Cannot convert ScalarType Float8_e4m3fnuz to cudaDataType.",
    ]
    only = (
        "RuntimeError: torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or "
        "ROCm MI300+"
    )
    assert answer(SCALED, "cuda-a100").splitlines() == [only] * 4


PINNED = """
import json, os, sys
sys.path.insert(0, ".")
from tests.simulator.device_models.cells import pin
import torch.testing._internal.common_utils  # once, before the forks
for capability in {capabilities}:
    if os.fork() == 0:
        pin(capability)
        from torch.testing._internal.common_methods_invocations import op_db
        print(json.dumps({{op.formatted_name: sorted(map(str, op.dtypesIfCUDA)) for op in op_db}}), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_only_attention_lacks_a_dtype_on_older_cards() -> None:
    """The models of CUDA cards can share their restrictions of dtypes.

    By OpInfo only two operators lack a dtype on older cards. The CPU, whose kernels the device runs, has neither.
    """
    cards = [_models.find(name).numbers for name in ("cuda-a100", "cuda-h100", "cuda-v100", "cuda-t4")]
    capabilities = [(numbers["major"], numbers["minor"]) for numbers in cards]
    newer, newest, *both_older = map(json.loads, answer(PINNED.format(capabilities=capabilities)).splitlines())
    assert newest == newer
    for older in both_older:
        assert {op: {*newer[op]} - {*older[op]} for op in newer if newer[op] != older[op]} == {
            "torch_ops_aten__flash_attention_forward": {"torch.bfloat16"},
            "torch_ops_aten__efficient_attention_forward": {"torch.bfloat16"},
        }


MESSAGES = {
    "torch.ones(2, 2, dtype=torch.int32, device=d) @ torch.ones(2, 2, dtype=torch.int32, device=d)": (
        "NotImplementedError: \"addmm_cuda\" not implemented for 'Int'"
    ),
    "torch.ones(1, 2, 2, dtype=torch.long, device=d) @ torch.ones(1, 2, 2, dtype=torch.long, device=d)": (
        "NotImplementedError: \"baddbmm_cuda\" not implemented for 'Long'"
    ),
    "torch.ones(2, dtype=torch.long, device=d) @ torch.ones(2, dtype=torch.long, device=d)": (
        "NotImplementedError: \"dot\" not implemented for 'Long'"
    ),
    "torch.nn.functional.conv2d(torch.ones(1, 1, 3, 3, dtype=torch.long, device=d), "
    "torch.ones(1, 1, 2, 2, dtype=torch.long, device=d))": (
        "RuntimeError: getCudnnDataTypeFromScalarType() not supported for Long"
    ),
    "torch.histc(torch.ones(2, dtype=torch.half, device=d))": "RuntimeError: HalfTensor is not supported",
}


def test_the_messages_of_refusals_are_cudas() -> None:
    code = "\n".join(f"print(error(lambda: {call}))" for call in MESSAGES)
    assert answer(ERROR + code, "cuda-t4").splitlines() == [*MESSAGES.values()]


@pytest.mark.parametrize("model", ["mps-like", "strict"])
def test_a_tensor_is_printed_where_there_is_no_float64(model: str) -> None:
    code = "print(repr(torch.tensor([1.5, 1e-9, float('inf')]).to(d)).replace(d, 'D'))"
    assert answer(code, model) == "tensor([1.5000e+00, 1.0000e-09,        inf], device='D:0')"
    assert answer("print(torch.tensor([0.1], dtype=torch.float64))", model) == "tensor([0.1000], dtype=torch.float64)"


def test_an_operator_without_a_cuda_kernel_is_refused_in_cudas_words() -> None:
    said = answer(ERROR + "print(error(lambda: torch.histogram(torch.ones(3, device=d), 3)))", "cuda-t4")
    assert said.startswith(
        "NotImplementedError: Could not run 'aten::histogram.bin_ct' with arguments from the 'CUDA' backend. This could"
    )


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_refusal_is_raised_by_the_call_in_every_mode(mode: str) -> None:
    code = ERROR + "x = torch.ones(2, 2, dtype=torch.int8, device=d)\nprint(error(lambda: x @ x))"
    assert "not implemented for 'Char'" in answer(code, "cuda-t4", OPENREG_EXECUTION=mode)


MACROS = (
    ERROR
    + """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, ".")
from tests.simulator.device_models.dispatch_macros import rows
wrong = []
for kind in ("accepts", "refuses"):
    for macro, dtype in rows(kind):
        how = error(lambda: macro.call(torch.ones(4, device=d).to(getattr(torch, dtype))))
        if how != "nothing" if kind == "accepts" else f'"{macro.kernel}" not implemented for' not in how:
            wrong.append([macro.kernel, kind, dtype, how[:90]])
        on_cpu = error(lambda: macro.call(torch.ones(4).to(getattr(torch, dtype))))
        if on_cpu != "nothing":
            wrong.append([macro.kernel, "the CPU refuses", dtype, on_cpu[:90]])
print(json.dumps(wrong))
"""
)


@pytest.mark.slow
def test_the_dispatch_macros_of_cudas_sources_agree() -> None:
    assert [len(list(dispatch_macros.rows(kind))) for kind in ("accepts", "refuses")] == [153, 68]
    assert json.loads(answer(MACROS, "cuda-a100").splitlines()[-1]) == []


# ---- TensorFloat-32 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("switch", "rounds"),
    [
        ("cuda.matmul.fp32_precision = 'tf32'", ["False", "False"]),
        ("fp32_precision = 'tf32'", ["False", "False"]),
        ("fp32_precision = 'ieee'", ["True", "True"]),
        ("cudnn.conv.fp32_precision = 'ieee'", ["True", "True"]),
    ],
)
def test_the_switches_of_fp32_precision_choose_what_is_rounded(switch: str, rounds: list[str]) -> None:
    head = TF32.partition("assert")[0]
    code = "print(torch.equal(product(), x @ x), torch.equal(convolved(conv), conv(image)))"
    code = f"{head}torch.backends.{switch}\n{code}"
    assert answer(code, "cuda-a100").split() == rounds


def test_convolutions_and_allowed_products_have_rounded_inputs() -> None:
    assert answer(TF32, "cuda-a100").split() == ["False", "True", "False", "True"]


def test_gradients_of_convolutions_are_rounded_and_integer_convolutions_refused() -> None:
    lines = answer(GRADIENTS, "cuda-a100").splitlines()
    assert lines == ["True", "getCudnnDataTypeFromScalarType() not supported for Long"]


def test_the_rounding_keeps_inf_and_nan_and_gives_the_nearest_of_10_bits() -> None:
    rounded = {
        "inf": "inf",
        "-inf": "-inf",
        "nan": "nan",
        "3.4e38": str(2046 * 2.0**117),
        "-1.00097": str(-1 - 2**-10),
    }
    code = f"""
torch.backends.cuda.matmul.allow_tf32 = True
for value in {[*rounded]}: print((torch.tensor([[float(value)]]).to(d) @ torch.ones(1, 1).to(d)).item())
"""
    assert answer(code, "cuda-a100").splitlines() == [*rounded.values()]


def test_all_products_of_matrices_are_rounded() -> None:
    code = """
torch.backends.cuda.matmul.allow_tf32 = True
a, b, m, v = torch.randn(2, 8, 8), torch.randn(2, 8, 8), torch.randn(8, 8), torch.randn(8)
products = [
    lambda m, a, b, v: torch.mm(m, m), lambda m, a, b, v: torch.mm(m, m, out=m.clone()),
    lambda m, a, b, v: torch.addmm(v, m, m), lambda m, a, b, v: m.clone().addmm_(m, m),
    lambda m, a, b, v: torch.addmm(v, m, m, out=m.clone()), lambda m, a, b, v: torch._addmm_activation(v, m, m),
    lambda m, a, b, v: torch._addmm_activation(v, m, m, out=m.clone()), lambda m, a, b, v: torch.addbmm(m, a, b),
    lambda m, a, b, v: m.clone().addbmm_(a, b), lambda m, a, b, v: torch.addbmm(m, a, b, out=m.clone()),
    lambda m, a, b, v: torch.bmm(a, b), lambda m, a, b, v: torch.bmm(a, b, out=a.clone()),
    lambda m, a, b, v: torch.baddbmm(a, a, b), lambda m, a, b, v: a.clone().baddbmm_(a, b),
    lambda m, a, b, v: torch.baddbmm(a, a, b, out=a.clone()), lambda m, a, b, v: torch.nn.functional.linear(a, m, v),
    lambda m, a, b, v: torch.linalg.multi_dot([m, m, m]), lambda m, a, b, v: torch.einsum("bij,bjk->bik", a, b),
]
here, there = (m, a, b, v), (m.to(d), a.to(d), b.to(d), v.to(d))
print([index for index, product in enumerate(products) if torch.equal(product(*here), product(*there).cpu())])
"""
    assert answer(code, "cuda-a100") == "[]"


@pytest.mark.parametrize("model", ["cuda-v100", "cuda-t4", None])
def test_older_cards_and_no_model_round_no_inputs(model: str | None) -> None:
    assert answer(TF32, model).split()[:3] == ["True", "False", "True"]


# ---- MPS, minimal, strict --------------------------------------------------------------------------------------------

DOUBLE = (
    "TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use "
    "float32 instead."
)


@pytest.mark.parametrize("model", ["mps-like", "strict"])
def test_float64_is_refused_in_mps_words(model: str) -> None:
    calls = (
        "torch.ones(2, dtype=torch.float64, device=d)",
        "torch.ones(2, dtype=torch.float64).to(d)",
        "torch.ones(2, device=d).double()",
        "torch.ones(2, device=d).sum(dtype=torch.float64)",
        "torch.arange(3, dtype=torch.float64, device=d)",
        "torch.ones(2, dtype=torch.long, device=d).view(torch.float64)",
        "torch._efficientzerotensor(2, dtype=torch.float64, device=d)",
    )
    code = "\n".join(f"print(error(lambda: {call}))" for call in calls)
    assert answer(ERROR + code, model).splitlines() == [DOUBLE] * len(calls)


RESULTS = (
    ERROR
    + """
i, f = torch.ones(3, dtype=torch.int32, device=d), torch.ones(3, device=d)
number, imaginary = torch.tensor(2.0, dtype=torch.float64), torch.tensor(1j, dtype=torch.complex128)
refused = [
    lambda: torch.mul(i, number),
    lambda: torch.atan2(i, number),
    lambda: torch.where(i > 0, i, number),
    lambda: torch._foreach_add([i, i], [number, number]),
    lambda: torch.mul(i.to_sparse(), number),
    lambda: f.mean(dtype=torch.float64),
    lambda: f.cumsum(0, dtype=torch.float64),
    lambda: f.softmax(0, dtype=torch.float64),
]
print({error(call) for call in refused})
print(error(lambda: torch.mul(i, imaginary)))
print(error(lambda: i + number))
for call in (lambda: f + number, lambda: i == number, lambda: i * 2.0, lambda: f * 1j, lambda: f.copy_(number)):
    call()
torch.set_default_dtype(torch.float64)
print({error(call) for call in (i.sqrt, lambda: torch.div(i, 2), lambda: torch.rand(2, device=d))})
"""
)


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_result_of_float64_is_refused_too(mode: str) -> None:
    products, imaginary, sign, default = answer(RESULTS, "mps-like", OPENREG_EXECUTION=mode).splitlines()
    assert products == str({DOUBLE})
    assert imaginary == (
        "TypeError: Trying to convert ComplexDouble to the MPS backend but it does not have support for that dtype."
    )
    assert sign == "TypeError: unsupported operand type(s) for +: 'Tensor' and 'Tensor'"  # PyTorch's, as on MPS
    assert default == str({DOUBLE})


LACKING = {  # a call -> the operator that has no kernel for MPS
    "f.put_(torch.tensor([0], device=d), f[:1])": "put_",
    "torch.linalg.eigh(m)": "_linalg_eigh",
    "torch.linalg.eigvals(m)": "_linalg_eigvals",
    "torch.pdist(m)": "_pdist_forward",
    "torch.nn.functional.ctc_loss(m[:, None], i, (3,), (2,))": "_ctc_loss",
    "torch._int_mm(m.to(torch.int8), m.to(torch.int8))": "_int_mm",
    "torch.nn.functional.adaptive_avg_pool3d(m.view(1, 3, 3, 1), 2)": "_adaptive_avg_pool3d",
    "aa(m.view(1, 1, 3, 3).requires_grad_()).sum().backward()": "_upsample_bilinear2d_aa_backward",
    "torch.logspace(0, 1, 3, device=d)": "logspace.out",
    "f.logit_()": "logit_",
    "f.hash_tensor()": "hash_tensor",
    "m.to_sparse_csr()": "_to_sparse_csr",
    "torch.std(f, 0, out=f.clone())": "std.correction_out",
    "torch.fake_quantize_per_tensor_affine(f, 1.0, 0, 0, 9)": "fake_quantize_per_tensor_affine_cachemask",
}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mps-like", "strict"])
def test_operators_that_mps_lacks_are_refused(model: str) -> None:
    calls = ", ".join(f"lambda: {call}" for call in LACKING)
    code = f"""{ERROR}
from functools import partial
f, m, i = torch.ones(3).to(d), torch.eye(3).to(d), torch.tensor([[1, 2]]).to(d)
aa = partial(torch.nn.functional.interpolate, size=2, mode="bilinear", antialias=True)
for call in ({calls}): print(error(call))
"""
    sentence = (
        "NotImplementedError: The operator 'aten::{}' is not currently implemented for the MPS device. If you want "
        "this op to be considered for addition please comment on https://github.com/pytorch/pytorch/issues/141287 and "
        "mention use-case, that resulted in missing op as well as commit hash `{}`. As a temporary fix, you can set "
        "the environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback for this op. WARNING: "
        "this will be slower than running natively on MPS."
    )
    expected = [sentence.format(operator, torch.version.git_version) for operator in LACKING.values()]
    assert answer(code, model).splitlines() == expected


@pytest.mark.parametrize("model", ["mps-like", "strict"])
def test_mps_has_no_float8(model: str) -> None:
    dtypes = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    code = "\n".join(f"print(error(lambda: torch.ones(2).to(d).to(torch.{dtype})))" for dtype in dtypes)
    sentence = "TypeError: Trying to convert {} to the MPS backend but it does not have support for that dtype."
    assert answer(ERROR + code, model).splitlines() == [sentence.format(dtype.capitalize()) for dtype in dtypes]


@pytest.mark.slow
def test_what_mps_computes_another_way_is_not_refused() -> None:
    code = """
m = torch.eye(3).to(d)
torch.nn.functional.embedding(torch.tensor([0], device=d), m, max_norm=0.5)
torch.linalg.svd(m)
torch.conv2d(m.view(1, 1, 3, 3), m.view(1, 1, 3, 3))
x = torch.ones(2, 5, 8).to(d)
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(d)
with torch.no_grad(): layer.eval()(x)
torch.nn.functional.scaled_dot_product_attention(x, x, x)
print((m > 0).any((0, 1)).item())
"""
    assert answer(code, "mps-like") == "True"


def test_a_gradient_scaler_needs_no_float64() -> None:
    code = """
weight = torch.ones(3, device=d, requires_grad=True)
scaler, optimizer = torch.amp.GradScaler(d, init_scale=4.0, growth_interval=1), torch.optim.SGD([weight], lr=0.5)
scaler.scale(weight.sum()).backward()
scaler.unscale_(optimizer)
print(weight.grad.tolist(), type(scaler._scale) is torch.Tensor)
scaler.step(optimizer)
scaler.update()
print(weight.tolist(), scaler.get_scale())
"""
    assert answer(code, "mps-like").splitlines() == ["[1.0, 1.0, 1.0] True", "[0.5, 0.5, 0.5] 8.0"]


TRAIN = """
net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Flatten(), torch.nn.Linear(18, 3)).to(d)
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(net(torch.randn(4, 1, 8, 8).to(d)), torch.tensor([0, 1, 2, 0]).to(d))
    net.zero_grad()
    loss.backward()
    for parameter in net.parameters(): parameter.data.sub_(parameter.grad, alpha=0.1)
assert loss.item() > 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in _models.names() if name != "minimal"])
def test_an_ordinary_network_trains_on_every_model_but_minimal(name: str) -> None:
    answer(TRAIN, name)


def test_the_model_minimal_computes_the_minimal_set_and_nothing_else() -> None:
    code = (
        ERROR
        + """
x = torch.tensor([1.0, 2.0]).to(d)
assert x[1:].clone().cpu().item() == 2
print(error(lambda: x + x))
"""
    )
    said = answer(code, "minimal")
    assert said.startswith("NotImplementedError: Could not run 'aten::add.") and "'PrivateUse1' backend" in said


def test_the_model_minimal_runs_an_operator_of_another_library_only_if_it_has_a_kernel_for_the_device() -> None:
    code = (
        ERROR
        + """
library = torch.library.Library("ours", "DEF")
for name, key in (("of_the_cpu", "CPU"), ("of_the_device", "PrivateUse1"), ("composed", "CompositeImplicitAutograd")):
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x.view(2, 1), key)
x = torch.tensor([1.0, 2.0]).to(d)
print(torch.ops.ours.of_the_device(x).shape, torch.ops.ours.composed(x).shape)
print(error(lambda: torch.ops.ours.of_the_cpu(x)))
"""
    )
    shapes, said = answer(code, "minimal").splitlines()
    assert shapes == "torch.Size([2, 1]) torch.Size([2, 1])"
    assert said.startswith(
        "NotImplementedError: Could not run 'ours::of_the_cpu' with arguments from the 'PrivateUse1'"
    )


def test_the_model_minimal_lists_the_minimal_set_of_the_sources() -> None:
    import re

    source = (ROOT / "csrc" / "aten" / "OpenRegMinimal.cpp").read_text()
    operators = {f"aten::{name}" for name in re.findall(r'm\.impl\("([^"]+)"', source)}
    only = _models.find("minimal").only_operators
    assert only is not None and set(only["operators"]) == operators


@pytest.mark.slow
def test_strict_refuses_what_the_others_refuse() -> None:
    strict = _models.find("strict")
    for name in _models.names():
        other = _models.find(name)
        if name not in ("minimal", "strict"):
            assert all(each in strict.restrictions for each in other.restrictions)
            assert all(each in strict.missing_operators for each in other.missing_operators)
            assert all(each in strict.absent_dtypes for each in other.absent_dtypes)
    for entries in (strict.restrictions, strict.missing_operators, strict.absent_dtypes):
        assert all(entries.count(each) == 1 for each in entries)


def test_strict_has_the_smallest_numbers_of_the_others() -> None:
    strict = _models.find("strict").numbers
    others = [_models.find(name).numbers for name in _models.names() if name not in ("minimal", "strict")]
    for name in set(_models.PROPERTIES) - {"name", "major", "minor", "device_count", "peer_access"}:
        found = [numbers[name] for numbers in others if name in numbers]
        assert strict.get(name) == min(found, default=None), name
    capabilities = [(numbers["major"], numbers["minor"]) for numbers in others if "major" in numbers]
    assert (strict["major"], strict["minor"]) == min(capabilities)
    assert not strict["peer_access"] and strict["device_count"] == 2


def test_each_missing_operator_of_strict_is_counted_and_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    strict, cuda, mps = (_models.find(name) for name in ("strict", "cuda-t4", "mps-like"))
    models_command.compare([strict, cuda, mps])
    (counts,) = re.findall(r"operators that are missing +(\d+) +(\d+) +(\d+)", capsys.readouterr().out)
    missing = [{name for each in m.missing_operators for name in each["operators"]} for m in (strict, cuda, mps)]
    assert missing[0] == missing[1] | missing[2] and list(map(int, counts)) == list(map(len, missing))
    models_command.show(strict, sources=False)
    assert capsys.readouterr().out.count("histogram.bins_tensor_out") == 1


# ---- unusable devices ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"OPENREG_VISIBLE_DEVICES": ""}, "no device is visible: OPENREG_VISIBLE_DEVICES hides all"),
        ({"OPENREG_FAULTS": "start=driver"}, "driver version is insufficient"),
        ({"OPENREG_FAULTS": "start=nodevice"}, "no OpenReg-capable device is detected"),
        ({"OPENREG_FAULTS": "device0@copy:1=lost"}, "busy or unavailable"),
    ],
    ids=["hidden", "old driver", "no device", "lost"],
)
def test_an_unusable_device_says_why(environment: dict[str, str], sentence: str) -> None:
    said = answer(ERROR + "print(error(lambda: torch.ones(1, device=d).cpu()))", "cuda-t4", **environment)
    assert sentence in said
