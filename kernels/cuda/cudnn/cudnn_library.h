// cuDNN's library, loaded when it is first asked for, so that programs start without it.
#pragma once

#include <string>

namespace quire::cuda {

// Loads the library, which stays, and returns its handle of dlopen. Error(config) says what is missing or which version
// it is that is not to be used.
void* load_cudnn();
// Empty, or "; ..." for the end of a message: the compiler that cuDNN calls when it plans attention was not found.
const std::string& missing_compiler();
// 91900 for 9.19.0, of the loaded library.
size_t cudnn_version_number();

// "9.19.0" for 91900.
std::string cudnn_version_text(size_t version);
// Empty, or why this version is refused and what to do. compiled: that of the headers.
std::string why_cudnn_refused(size_t version, size_t compiled);

}  // namespace quire::cuda
