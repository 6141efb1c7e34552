// Replaces NVIDIA's driver (libcuda.so.1), as far as cuDNN calls it when it builds a plan for a GPU that is not
// present: it compiles a kernel, loads it, and asks nothing about a device. Calls that would need a device fail with
// CUDA_ERROR_STUB_LIBRARY.

// NOLINTBEGIN: CUDA's own words
namespace {

constexpr int kSuccess = 0;
constexpr int kStubLibrary = 34;

// A handle that is not null; nobody looks behind it.
int loaded(void** handle) {
  static int something = 0;
  *handle = &something;
  return kSuccess;
}

}  // namespace

#define QUIRE_FAILS(name) \
  int name() {            \
    return kStubLibrary;  \
  }

extern "C" {

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return kSuccess;
}
int cuDeviceGet(int* device, int) {
  *device = 0;
  return kSuccess;
}
int cuLibraryLoadData(void** library, const void* image, ...) {
  return image == nullptr ? kStubLibrary : loaded(library);
}
int cuLibraryUnload(void*) {
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel, void*, const char*) {
  return loaded(kernel);
}
int cuKernelGetFunction(void** function, void*) {
  return loaded(function);
}
int cuKernelSetAttribute(int, int, void*, int) {
  return kSuccess;
}
int cuKernelGetAttribute(int* value, int, void*, int) {
  *value = 0;
  return kSuccess;
}
int cuFuncSetAttribute(void*, int, int) {
  return kSuccess;
}
int cuFuncGetAttribute(int* value, int, void*) {
  *value = 0;
  return kSuccess;
}

QUIRE_FAILS(cuCtxGetCurrent)
QUIRE_FAILS(cuCtxGetLimit)
QUIRE_FAILS(cuCtxPopCurrent)
QUIRE_FAILS(cuCtxPushCurrent)
QUIRE_FAILS(cuGetErrorName)
QUIRE_FAILS(cuGetErrorString)
QUIRE_FAILS(cuLaunchCooperativeKernel)
QUIRE_FAILS(cuLaunchKernel)
QUIRE_FAILS(cuLaunchKernelEx)
QUIRE_FAILS(cuLibraryGetGlobal)
QUIRE_FAILS(cuLibraryLoadFromFile)
QUIRE_FAILS(cuLinkAddData)
QUIRE_FAILS(cuLinkComplete)
QUIRE_FAILS(cuLinkCreate)
QUIRE_FAILS(cuLinkDestroy)
QUIRE_FAILS(cuOccupancyMaxPotentialClusterSize)
QUIRE_FAILS(cuStreamGetCtx)

}  // extern "C"
// NOLINTEND
