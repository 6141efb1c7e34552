#include "trainers/report/page_files.h"

// The assembler reads the files; CMake gives their paths. The symbols stay inside the library.
#define QUIRE_FILE(name, path)                           \
  __asm__(                                               \
      ".pushsection .rodata\n"                           \
      ".hidden quire_file_" #name                        \
      "\n"                                               \
      ".hidden quire_file_" #name                        \
      "_end\n"                                           \
      ".globl quire_file_" #name                         \
      "\n"                                               \
      ".globl quire_file_" #name                         \
      "_end\n"                                           \
      "quire_file_" #name                                \
      ":\n"                                              \
      ".incbin \"" path                                  \
      "\"\n"                                             \
      "quire_file_" #name                                \
      "_end:\n"                                          \
      ".byte 0\n"                                        \
      ".popsection\n");                                  \
  extern "C" const char quire_file_##name[];             \
  extern "C" const char quire_file_##name##_end[];       \
  static std::string_view file_##name() {                \
    return {quire_file_##name, quire_file_##name##_end}; \
  }

QUIRE_FILE(chart_library, QUIRE_CHART_LIBRARY)
QUIRE_FILE(chart_parts, QUIRE_CHART_PARTS)
QUIRE_FILE(page_script, QUIRE_PAGE_SCRIPT)
QUIRE_FILE(page_style, QUIRE_PAGE_STYLE)
QUIRE_FILE(output_page, QUIRE_OUTPUT_PAGE)

namespace quire {

std::string_view chart_library() {
  return file_chart_library();
}
std::string_view chart_parts() {
  return file_chart_parts();
}
std::string_view page_script() {
  return file_page_script();
}
std::string_view page_style() {
  return file_page_style();
}
std::string_view output_page() {
  return file_output_page();
}

}  // namespace quire
