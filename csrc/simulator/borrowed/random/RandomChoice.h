#pragma once

namespace at::openreg {

// The value of OPENREG_RNG if the variable is not set: "cpu" for the CPU's random numbers, "philox" for those of a GPU.
const char* default_random_numbers();

} // namespace at::openreg
