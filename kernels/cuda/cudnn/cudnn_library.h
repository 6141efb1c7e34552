// Loads cuDNN's library when it is first asked for, so that programs start without it.
#pragma once

#include <string>

namespace quire::cuda {

// Loads the library, which stays, and returns its handle of dlopen. Error(config) says what is missing, or which
// version is refused.
void* load_cudnn();
// Returns "; ..." for the end of a message when the compiler that cuDNN calls to plan attention was not found;
// otherwise empty.
const std::string& missing_compiler();
// Returns the number of the loaded library's version: 91900 for 9.19.0.
size_t cudnn_version_number();

// Returns "9.19.0" for 91900.
std::string cudnn_version_text(size_t version);
// Returns why this version is refused and what to do; empty when it is accepted. `compiled` is the version of the
// headers.
std::string why_cudnn_refused(size_t version, size_t compiled);

}  // namespace quire::cuda
