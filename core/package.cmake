# What is installed: the program with its libraries, manual page, completion and configurations; headers and a package for
# find_package(quire); and, where it is asked for by name, a bundle (--component bundle): everything that the program takes
# from this machine, so that the folder runs on another one.
install(TARGETS quire_cli RUNTIME_DEPENDENCY_SET quire_libraries RUNTIME DESTINATION bin COMPONENT program)
install(TARGETS libquire EXPORT quire RUNTIME_DEPENDENCY_SET quire_libraries LIBRARY DESTINATION lib/quire COMPONENT program)
install(DIRECTORY configs/ DESTINATION share/quire/configs COMPONENT program)
# The program writes its own pages.
install(CODE "
  foreach(page --man=share/man/man1/quire.1 --bash-completion=share/bash-completion/completions/quire)
    string(REGEX MATCH \"^[^=]*\" option \"\${page}\")
    string(REGEX REPLACE \"^[^=]*=\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/\" file \"\${page}\")
    execute_process(COMMAND $<TARGET_FILE:quire_cli> \${option} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
    file(WRITE \"\${file}\" \"\${text}\")
    message(STATUS \"Installing: \${file}\")
  endforeach()" COMPONENT program)

foreach(folder core kernels autograd layers data trainers)
  install(DIRECTORY ${folder} DESTINATION include/quire COMPONENT development
          FILES_MATCHING PATTERN "*.h" PATTERN "kernels/cpu" EXCLUDE PATTERN "kernels/cuda" EXCLUDE PATTERN "kernels/faiss" EXCLUDE
          PATTERN "trainers/cli" EXCLUDE PATTERN "core/ranks/mpi" EXCLUDE)
endforeach()
set_target_properties(libquire PROPERTIES EXPORT_NAME quire)
target_compile_features(libquire INTERFACE cxx_std_20)
target_include_directories(libquire INTERFACE $<INSTALL_INTERFACE:include/quire>)
install(EXPORT quire NAMESPACE quire:: FILE quireTargets.cmake DESTINATION lib/cmake/quire COMPONENT development)
include(CMakePackageConfigHelpers)
file(WRITE ${CMAKE_BINARY_DIR}/quireConfig.cmake "include(CMakeFindDependencyMacro)
find_dependency(fmt)
find_dependency(nlohmann_json)
include(\${CMAKE_CURRENT_LIST_DIR}/quireTargets.cmake)
")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/quireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/quireConfig.cmake ${CMAKE_BINARY_DIR}/quireConfigVersion.cmake
        DESTINATION lib/cmake/quire COMPONENT development)

# The bundle leaves out the libraries of the C library and of CUDA, which come with the machine.
install(DIRECTORY configs DESTINATION . COMPONENT bundle EXCLUDE_FROM_ALL)
install(CODE [[
  execute_process(COMMAND git rev-parse --short HEAD WORKING_DIRECTORY ${CMAKE_CURRENT_LIST_DIR}
                  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(WRITE "${CMAKE_INSTALL_PREFIX}/COMMIT" "${commit}\n")
]] COMPONENT bundle EXCLUDE_FROM_ALL)
install(RUNTIME_DEPENDENCY_SET quire_libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv)\\.so" "^lib(cuda|cublas|cublasLt|cudart|cudnn|nccl)"
  POST_EXCLUDE_REGEXES "/build/.*/lib/libquire"
  DIRECTORIES ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}
  LIBRARY DESTINATION lib/quire COMPONENT bundle EXCLUDE_FROM_ALL)

# cpack in the build folder makes Debian packages: quire, quire-dev and, with the CUDA backend, quire-cuda.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quire)
set(CPACK_PACKAGE_CONTACT "The developers of quire")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME quire)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Training framework for long-document language models")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "Trains and compares long-context mechanisms: the program quire, its libraries and configurations.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME quire-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "quire (= ${PROJECT_VERSION}), libfmt-dev, nlohmann-json3-dev, libmicrohttpd-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers of quire, and a package for find_package(quire) of CMake.")
if(TARGET quire_cuda)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
  set(CPACK_DEBIAN_CUDA_PACKAGE_NAME quire-cuda)
  set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "quire (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS OFF)  # no package of Debian has CUDA's libraries
  set(CPACK_COMPONENT_CUDA_DESCRIPTION "Kernels of quire for NVIDIA GPUs.")
endif()
include(CPack)
