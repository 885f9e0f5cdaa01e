"""When torch.compile needs this folder's code generator, and Triton its driver: rows for torch_openreg._loader."""

COMPILER = (
    ("torch._dynamo.device_interface", "torch_openreg.simulator.inductor:register_convolutions"),
    ("torch._inductor.codegen.common", "torch_openreg.simulator.inductor:register_with_inductor"),
    ("torch._inductor.compile_fx", "torch_openreg.simulator.inductor._differences:patch_inductor"),
    ("torch._inductor.cudagraph_trees", "torch_openreg.openreg.sanitizer:check_kept_results"),
    ("torch._dynamo.trace_rules", "torch_openreg.simulator.triton:leave_out"),
    ("triton.knobs", "torch_openreg.simulator.triton:interpret_if_asked"),
    ("triton.backends", "torch_openreg.simulator.triton._driver:add_driver"),
    ("triton.runtime.jit", "torch_openreg.simulator.triton:patch_launches"),
    ("triton.runtime.autotuner", "torch_openreg.simulator.triton:patch_autotuner"),
    ("triton.runtime.interpreter", "torch_openreg.simulator.triton:patch_interpreter"),
)
