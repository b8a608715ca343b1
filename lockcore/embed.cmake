# embed_files(TARGET HEADER NAMESPACE FILES...): compiles text files into a target,
# which then needs no files at run time.
#
# It generates HEADER (included as <HEADER>) with, in NAMESPACE,
# the array `files` of {name, text} in the given order, and `file(name)`.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  function(embed_files target header namespace)
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/generated)
    add_custom_command(OUTPUT ${folder}/${header}
      COMMAND ${CMAKE_COMMAND} -DOUTPUT=${folder}/${header} -DNAMESPACE=${namespace} "-DINPUTS=${ARGN}"
        -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
      DEPENDS ${ARGN} ${CMAKE_CURRENT_FUNCTION_LIST_FILE} VERBATIM)
    target_sources(${target} PRIVATE ${folder}/${header})
    target_include_directories(${target} PRIVATE ${folder})
  endfunction()
  return()
endif()

# Runs at build time. The text is written as hexadecimal characters: CMake's lists would change ;
# and [ ], and the length of a string literal is limited.
set(arrays "")
set(entries "")
list(LENGTH INPUTS count)
set(number 0)
foreach(input IN LISTS INPUTS)
  get_filename_component(name ${input} NAME)
  file(READ ${input} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND arrays "inline constexpr char file_${number}[] = {${bytes}};\n")
  string(APPEND entries "    {\"${name}\", {file_${number}, sizeof file_${number}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "// Made by lockcore/embed.cmake.
#pragma once
#include <string_view>
namespace ${NAMESPACE} {
struct embedded_file {
    std::string_view name, text;
};
${arrays}inline constexpr embedded_file files[] = {
${entries}};
constexpr std::string_view file(std::string_view name) {
    for (const embedded_file& f : files) {
        if (f.name == name) return f.text;
    }
    throw \"no such file\";  // fails at compile time
}
}  // namespace ${NAMESPACE}
")
