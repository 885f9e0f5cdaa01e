"""Where meta kernels written in Python belong: ``torch.library.register_fake("openreg::...")``.

The custom operators have theirs in C++ (csrc/aten/native/Custom.cpp), which serves C++ callers too, so there is none.
"""
