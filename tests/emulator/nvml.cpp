// NVML for the emulated device: figures that do not change, and different ones for everything.
#include <cstring>

#include "driver/api.hpp"

namespace {

constexpr int SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6;
bool initialized = false;
char device;

int ask(const void* handle) {
  if (!initialized) return UNINITIALIZED;
  return handle == &device ? SUCCESS : INVALID_ARGUMENT;
}

}  // namespace

EXPORT int nvmlInit_v2() {
  initialized = true;
  return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle) {
  if (!initialized) return UNINITIALIZED;
  if (std::strcmp(id, "00000000:01:00.0") != 0) return NOT_FOUND;
  *handle = &device;
  return SUCCESS;
}

EXPORT int nvmlDeviceGetUtilizationRates(void* handle, unsigned rates[2]) {
  rates[0] = 87, rates[1] = 12;
  return ask(handle);
}

EXPORT int nvmlDeviceGetMemoryInfo(void* handle, unsigned long long total_free_used[3]) {
  total_free_used[0] = 8ULL << 30, total_free_used[1] = 5ULL << 30, total_free_used[2] = 3ULL << 30;
  return ask(handle);
}

EXPORT int nvmlDeviceGetTemperature(void* handle, unsigned sensor, unsigned* celsius) {
  *celsius = 41;
  return sensor == 0 ? ask(handle) : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetPowerUsage(void* handle, unsigned* milliwatts) {
  *milliwatts = 123456;
  return ask(handle);
}

EXPORT int nvmlDeviceGetJpgUtilization(void* handle, unsigned* percent, unsigned* period_us) {
  *percent = 55, *period_us = 100000;
  return ask(handle);
}
