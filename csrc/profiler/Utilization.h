#pragma once

#include <c10/core/Device.h>
#include <chrono>

#include "runtime/OpenRegException.h"

namespace c10::openreg {

// Two shares of a period, from 0 to 1. NVML's nvmlUtilization_t has the same two, in percent.
struct Utilization {
  double compute; // a kernel was running
  double memory;  // a kernel, a copy or a fill was running
};

// Watches a device for a period, and returns when the period is over. The work of all threads of the process counts.
// The function subscribes to the device's activities for the period only: a permanent subscriber would read the clock
// twice for every kernel.
OPENREG_API Utilization measure_utilization(DeviceIndex device, std::chrono::nanoseconds period);

} // namespace c10::openreg
