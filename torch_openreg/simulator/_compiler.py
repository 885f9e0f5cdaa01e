"""When torch.compile needs this folder's code generator: rows for torch_openreg._loader."""

COMPILER = (
    ("torch._dynamo.device_interface", "torch_openreg.simulator.inductor:register_convolutions"),
    ("torch._inductor.codegen.common", "torch_openreg.simulator.inductor:register_with_inductor"),
    ("torch._inductor.compile_fx", "torch_openreg.simulator.inductor._differences:patch_inductor"),
)
