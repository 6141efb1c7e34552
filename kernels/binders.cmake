# Sources are found, and so are the functions that bind operations to them: a source that is new needs no line anywhere.

# file: a source that defines NAMESPACE::bind_all(), which calls every `void bind_NAME() {` of the sources given.
function(quire_binders file namespace)
  add_custom_command(OUTPUT ${file}
    COMMAND ${CMAKE_COMMAND} "-DFILE=${file}" "-DNAMESPACE=${namespace}" "-DSOURCES=${ARGN}"
            -P ${PROJECT_SOURCE_DIR}/kernels/write_binders.cmake
    DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/kernels/write_binders.cmake VERBATIM)
endfunction()
