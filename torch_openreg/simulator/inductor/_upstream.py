"""What inductor decides by a device's name, and no registration can change: rows of torch_openreg._upstream.

The loops are the CPU's, so the choices about loops must be the CPU's too. But the device is an accelerator, so the
choices about devices must be as for a GPU: which operand decides the device of a result, device guards, streams. To
append the name to inductor's GPU_TYPES is no solution: the scheduler would then order loops as SIMD backends (Triton)
need them, and inductor would ask for Triton.
"""

from __future__ import annotations

from torch_openreg._upstream import Replaced

_LOOPS = "the code generator of a device says whether its loops are the CPU's or a GPU's"
_MEASURES = "the code generator of a device says how its kernels are measured"
_ACCELERATOR = "the device's interface says that it is an accelerator, apart from is_gpu(), which also asks for Triton"

# LITERALINCLUDE START: DIFFERENCES
DIFFERENCES = (
    Replaced(
        "torch._inductor.scheduler:BaseSchedulerNode",
        "is_cpu",
        "torch_openreg.simulator.inductor._differences:_is_cpu",
        "As on the CPU, the scheduler does not reorder loops. On a GPU it reorders loops so that more loops are fused.",
        _LOOPS,
    ),
    Replaced(
        "torch._inductor.ir",
        "get_device_type",
        "torch_openreg.simulator.inductor._differences:_device_type",
        "As on the CPU, inductor chooses the thresholds for computing a value twice, and the code of "
        "argmin and argmax.",
        _LOOPS,
    ),
    Replaced(
        "torch._inductor.lowering",
        "use_two_step_variance",
        "torch_openreg.simulator.inductor._differences:_as_on_cpu",
        "As on the CPU, a variance is computed in two steps: then LayerNorm gives the same numbers.",
        _LOOPS,
    ),
    Replaced(
        "torch._inductor.lowering",
        "div_prim",
        "torch_openreg.simulator.inductor._differences:_div_prim",
        "As on the CPU, a division by a constant does not become a multiplication by its reciprocal.",
        _LOOPS,
    ),
    Replaced(
        "torch._inductor.lowering",
        "use_scatter_fallback",
        "torch_openreg.simulator.inductor._differences:_scatter_as_on_cpu",
        "As on the CPU, a scatter with several threads runs ATen's kernel: atomic additions are slower, "
        "and their order varies.",
        _LOOPS,
    ),
    Replaced(
        "torch._inductor.decomposition",
        "use_scatter_fallback",
        "torch_openreg.simulator.inductor._differences:_scatter_as_on_cpu",
        "See the row before.",
        _LOOPS,
    ),
    Replaced(
        "torch._inductor.lowering",
        "is_gpu",
        "torch_openreg.simulator.inductor._differences:_or_ours",
        "A result of a CPU scalar and a device tensor is on the device.",
        _ACCELERATOR,
    ),
    Replaced(
        "torch._inductor.codegen.cpp:CppScheduling",
        "define_kernel",
        "torch_openreg.simulator.inductor._differences:_without_device_memory",
        "An operator such as _foreach_add_ may write the result of device tensors into a CPU tensor. "
        "Inductor would make a kernel on the CPU, which cannot access the memory of the device. So the "
        "compilation raises RuntimeError.",
        "inductor checks that the operands of a kernel are on its device",
    ),
    Replaced(
        "torch._inductor.scheduler",
        "device_need_guard",
        "torch_openreg.simulator.inductor._differences:_or_ours",
        "The generated code gets device guards. Inductor writes the lines that set a stream only inside a "
        "device guard.",
        _ACCELERATOR,
    ),
    Replaced(
        "torch._inductor.scheduler:Scheduler",
        "speedup_by_combo_kernel",
        "torch_openreg.simulator.inductor._differences:_no_combination",
        "As on the CPU, independent loops are not combined in one kernel, and two matrix products are not "
        "fused: these kernels are Triton's.",
        _LOOPS,
    ),
    Replaced(
        "torch._inductor.fx_passes.b2b_gemm",
        "is_b2b_gemm_good_on",
        "torch_openreg.simulator.inductor._differences:_no_two_products",
        "See the row before.",
        _LOOPS,
    ),
    Replaced(
        "torch._inductor.scheduler:Scheduler",
        "speedup_by_fusion",
        "torch_openreg.simulator.inductor._differences:_fused_as_on_cpu",
        "As on the CPU, loops are fused without a measurement: inductor would measure Triton's kernels.",
        _MEASURES,
    ),
    Replaced(
        "torch._inductor.utils",
        "_use_template_for_cpu",
        "torch_openreg.simulator.inductor._differences:_templates_as_on_cpu",
        "As on the CPU, max-autotune measures templates in C++ for matrix products. The templates and "
        "ATen's kernels are measured with tensors on the CPU, because the measurement calls a template "
        "directly. Only a launch translates the addresses of the device.",
        _MEASURES,
    ),
    Replaced(
        "torch._inductor.select_algorithm:AlgorithmSelectorCache",
        "__call__",
        "torch_openreg.simulator.inductor._differences:_chosen_at_once",
        "See the row before.",
        _MEASURES,
    ),
    Replaced(
        "torch._inductor.select_algorithm:AlgorithmSelectorCache",
        "generate_example_value",
        "torch_openreg.simulator.inductor._differences:_example_on_cpu",
        "See the row before.",
        _MEASURES,
    ),
    Replaced(
        "torch._inductor.autotune_process:GPUDeviceBenchmarkMixin",
        "do_bench",
        "torch_openreg.simulator.inductor._differences:_timed_on_cpu",
        "See the row before.",
        _MEASURES,
    ),
    Replaced(
        "torch._inductor.compile_fx",
        "compile_fx_aot",
        "torch_openreg.simulator.inductor._packages:compile_on_the_cpu",
        "AOTInductor's headers in C++ know CUDA, XPU and MPS, and its constants are on one of these or on the CPU. So a "
        "model is compiled for the CPU, and its package is marked as the device's.",
        "the C++ half of DeviceOpOverrides, and shims, for a device outside PyTorch "
        "([#189998](https://github.com/pytorch/pytorch/issues/189998))",
    ),
    Replaced(
        "torch._inductor.codecache:FxGraphHashDetails",
        "_may_generate_cpu_cpp_code",
        "torch_openreg.simulator.inductor._differences:_is_cpp",
        "As on the CPU, the key of inductor's cache contains the number of threads, because the loops are "
        "generated for this number. Without the number, a process with many threads could get loops that "
        "use only one thread.",
        "a device's code generator adds to the key of the cache",
    ),
    Replaced(
        "torch._inductor.ir:FallbackKernel",
        "process_kernel",
        "torch_openreg.simulator.inductor._differences:_any_generator",
        "Since 2.14, inductor accepts the generator of a checkpointed region only if its type is CUDA's "
        "or XPU's, and then takes the generator of the accelerator, whatever its type is. So inductor is "
        "told that our generator is CUDA's.",
        "inductor asks the registry of register_graphsafe_rng_device_type",
    ),
    *(
        Replaced(
            "torch._inductor.lowering:lowerings",
            f"torch.ops:higher_order.{name}",
            "torch_openreg.simulator.inductor._differences:_decomposed",
            "Inductor generates Triton for this operator on each device but the CPU. Here it compiles what the operator's "
            "implementation for eager execution calls.",
            "the code generator of a device says which templates it has",
        )
        for name in ("flex_attention", "flex_attention_backward", "associative_scan")
    ),
    Replaced(
        "torch._inductor.graph",
        "SUPPORTED_MKLDNN_DEVICES",
        "torch_openreg.simulator.inductor._differences:SUPPORTED_MKLDNN_DEVICES",
        "As on the CPU, the activations of convolutions are channels-last.",
        _LOOPS,
        wraps=False,
    ),
)
# LITERALINCLUDE END: DIFFERENCES
CODE_GENERATORS = (
    Replaced(
        "torch._inductor.codegen.common",
        "init_backend_registration",
        "torch_openreg.simulator.inductor:register_before",
        "Inductor finds the code generator of a device's module by itself, but then without a "
        "configuration, which puts "
        "the version of torch_openreg into the key of inductor's cache.",
        "the device's module has a name for the configuration too",
    ),
)
CONVOLUTIONS = tuple(
    Replaced(
        "torch._subclasses.fake_impls:op_implementations_dict",
        f"torch.ops:aten.{name}.default",
        "torch_openreg.simulator.inductor:fake_convolution",
        "PyTorch does not know that this device runs the CPU's kernels, which choose the layouts of a "
        "convolution's results.",
        "a fake implementation of an operator by dispatch key",
    )
    for name in ("convolution", "_convolution", "convolution_backward")
)
ROWS = DIFFERENCES + CODE_GENERATORS + CONVOLUTIONS
