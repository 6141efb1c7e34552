// The fixed parts of the page of a trace.
#pragma once

namespace quire {

extern const char* const kTracePageStyle;
extern const char* const kTracePageBody;
extern const char* const kTracePageScript;

}  // namespace quire
