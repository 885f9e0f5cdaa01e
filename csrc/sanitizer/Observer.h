#pragma once

#include <openreg_activity.h>

// What the sanitizer does with each activity of the device.
namespace c10::openreg::sanitizer {

// The kinds of activity that observe() needs.
constexpr unsigned kObserved = orActivityLaunch | orActivityKernel | orActivityAllocation | orActivityFree |
                               orActivityUse | orActivityHandle | orActivityCall | orActivitySynchronization;

// An orActivityFn_t.
void observe(const orActivity* activity, void* data);

// Whether the calling thread computes a kernel at the moment.
bool is_in_kernel();

} // namespace c10::openreg::sanitizer
