# Flags of the product's code (lockcore, gateway) that make faults of memory harder to exploit; tests/integration/test_hardening.py finds each of them in the program.
# Not for the tests' own code, and not together with sanitizers, which find such faults themselves.
option(FENCEGATE_HARDENING "Build the product with stack protection, checks of library calls and of indirect jumps, at a random address, with read-only relocations" ON)
add_library(hardening_options INTERFACE)
if(FENCEGATE_HARDENING AND NOT FENCEGATE_SANITIZE)
  include(CheckCXXCompilerFlag)
  # Of x86 alone: marks the targets of indirect jumps (IBT) and keeps returns compatible with a shadow stack (SHSTK).
  check_cxx_compiler_flag(-fcf-protection=full FENCEGATE_HAS_CF_PROTECTION)
  target_compile_options(hardening_options INTERFACE -fPIE -fstack-protector-strong -fstack-clash-protection $<$<BOOL:${FENCEGATE_HAS_CF_PROTECTION}>:-fcf-protection=full>)
  # Needs an optimized build. Undefined first, because a distribution's compiler may define a lower level.
  target_compile_options(hardening_options INTERFACE $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=3>)
  target_link_options(hardening_options INTERFACE -pie -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()
