# Writes OUTPUT: one `inline constexpr char <name>[]` a Lua file of INPUTS.
set(text "#pragma once\n// Made by redis/embed.cmake from redis/scripts/*.lua.\nnamespace lockcore::redis::scripts {\n")
foreach(input IN LISTS INPUTS)
  get_filename_component(name ${input} NAME_WE)
  file(READ ${input} body)
  string(APPEND text "inline constexpr char ${name}[] = R\"lua(${body})lua\";\n")
endforeach()
string(APPEND text "}  // namespace lockcore::redis::scripts\n")
file(WRITE ${OUTPUT} "${text}")
