"""Where meta kernels written in Python belong: ``torch.library.register_fake("openreg::...")``.

The custom operators here have theirs in C++ (csrc/aten/native/Custom.cpp), which also serves C++ callers, so there is none.
"""
