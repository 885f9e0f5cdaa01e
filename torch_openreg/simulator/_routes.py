"""The routes on which a CPU kernel computes on device memory, for the command ops."""

# Route -> what it means.
ROUTES = {
    "override": "a function of the backend that calls the CPU's kernel, in the place of PyTorch's default",
    "structured": "PyTorch's structured kernel over the device's memory, with the CPU's inner loop (STUB)",
    "unboxed": "the CPU's kernel on device memory, called without boxing its arguments",
    "registered fallback": "the boxed fallback, for an operator that PyTorch would compose, or that alerts on CUDA",
}
# The option that lists the operators of these routes, and of the fallback.
OPTION = "--borrowed"
